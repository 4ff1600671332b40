package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"sync"
	"syscall"

	"colabrelay/shared/contract"
)

// segmentsPerLog is how many segments fill a log up to its limit.
const segmentsPerLog = 16

// eventLog is the events of one execution: NDJSON in segment files that are only
// appended to. Past its limit, segments from the middle are deleted: the beginning
// and the end of the output are kept, and a reader gets a gap event in between.
type eventLog struct {
	dir   string
	limit int64

	mu        sync.Mutex
	loaded    bool
	segments  []*segment
	next      int64    // offset of the next event
	written   int64    // bytes of all events so far
	kept      int64    // bytes of them that are still kept
	file      *os.File // of the last segment; nil while it is not open
	late      *late    // bounds what is in memory
	unwritten int64    // bytes in memory, because the disk is full
	recent    *recent  // nil if the log is long, closed or that of an earlier executor
	retired   bool     // nothing is written any more
}

// load reads what an earlier executor left, if it has not been read yet: output may have followed
// the last saved state.
func (l *eventLog) load() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loadLocked()
}

func (l *eventLog) loadLocked() error {
	if l.loaded {
		return nil
	}
	l.segments, l.kept = listSegments(l.dir), 0
	for _, s := range l.segments {
		l.kept += s.size
	}
	if last := l.lastLocked(); last != nil {
		if err := last.index(); err != nil {
			return err
		}
		l.written = max(l.written, last.start+last.size)
		l.next = max(l.next, last.end)
	}
	l.loaded = true
	return nil
}

// repair removes a last line that a kill has torn, and loads the log.
func (l *eventLog) repair() error {
	var err error
	if all := listSegments(l.dir); len(all) > 0 {
		err = cutTornLine(all[len(all)-1].path)
	}
	return errors.Join(err, l.load())
}

// append gives the event its offset and writes it. A gap gets as many offsets as it
// replaces. It returns the size of its line, and whether events wait in memory because the
// disk is full.
func (l *eventLog) append(event contract.Event) (size int64, inMemory bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return 0, false, fs.ErrNotExist
	}
	if err := l.loadLocked(); err != nil {
		return 0, false, err
	}
	event.Offset = l.next
	line, err := marshalEvent(&event)
	if err != nil {
		return 0, false, err
	}
	if err := l.writeLocked(line); err != nil {
		return 0, false, err
	}
	size = int64(len(line))
	l.next += offsets(event)
	l.lastLocked().grow(event.Offset, size, l.next)
	l.kept += size
	l.written += size
	if l.recent != nil && !l.recent.add(event, size) {
		l.recent = nil
	}
	return size, l.unwritten > 0, nil
}

// marshalEvent returns the event's line. An event over the bound becomes a gap; the
// callers' own bounds should not let one get here.
func marshalEvent(event *contract.Event) ([]byte, error) {
	line, err := marshalLine(event)
	if err == nil && len(line) > contract.MaxEventBytes {
		*event = contract.Event{Offset: event.Offset, Time: event.Time, Type: contract.EventGap, Bytes: int64(len(line)), Events: 1}
		line, err = marshalLine(event)
	}
	return line, err
}

// marshalLine does not escape <, > and &, so that JSON payloads read from the file are
// those that were written.
func marshalLine(event *contract.Event) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := enc.Encode(event)
	return line.Bytes(), err
}

// offsets is how many offsets an event takes.
func offsets(e contract.Event) int64 { return max(1, e.Events) }

// writeLocked writes a line to the last segment, or to memory if the disk is full.
func (l *eventLog) writeLocked(line []byte) error {
	if last := l.lastLocked(); last == nil || last.unwritten == nil {
		if err := l.writeToFileLocked(line); !isFull(err) {
			return err
		}
	}
	return l.writeToMemoryLocked(line)
}

func (l *eventLog) writeToFileLocked(line []byte) error {
	seg, err := l.segmentForLocked(int64(len(line)))
	if err != nil {
		return err
	}
	if n, err := l.file.Write(line); err != nil {
		if n > 0 { // a partial line must not precede the next one
			_ = l.file.Truncate(seg.size)
		}
		return err
	}
	return nil
}

// segmentForLocked returns the open segment that takes n more bytes: a new one when
// the last is full.
func (l *eventLog) segmentForLocked(n int64) (*segment, error) {
	last := l.lastLocked()
	if last == nil || last.size > 0 && last.size+n > l.limit/segmentsPerLog {
		l.closeFileLocked()
		l.dropMiddleLocked()
		last = newSegment(l.dir, l.next, l.written)
		l.segments = append(l.segments, last)
	}
	if l.file != nil && !gone(l.file, last.path) {
		return last, nil
	}
	return last, l.openLocked(last)
}

// openLocked opens the file of the last segment. If the file was deleted while it was open, it is
// made again with its content.
func (l *eventLog) openLocked(last *segment) error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(last.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if l.file != nil {
		if _, err := io.Copy(file, io.NewSectionReader(l.file, 0, last.size)); err != nil {
			return errors.Join(err, file.Close(), os.Remove(last.path))
		}
		l.file.Close()
	}
	l.file, last.file = file, file
	return nil
}

// lastLocked is the segment that is written to, nil if there is none.
func (l *eventLog) lastLocked() *segment {
	if len(l.segments) == 0 {
		return nil
	}
	return l.segments[len(l.segments)-1]
}

// dropMiddleLocked makes room for one more segment.
func (l *eventLog) dropMiddleLocked() {
	const head = segmentsPerLog / 2
	for len(l.segments) > head && l.kept+l.limit/segmentsPerLog > l.limit {
		old := l.segments[head]
		if err := os.Remove(old.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
		l.kept -= old.size
		l.recent = nil
		l.segments = slices.Delete(l.segments, head, head+1)
	}
}

// dropMissingLocked forgets segments whose files were deleted: readers get a gap.
func (l *eventLog) dropMissingLocked() {
	l.segments = slices.DeleteFunc(l.segments, func(s *segment) bool {
		if s.unwritten != nil || s.file != nil {
			return false
		}
		if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		l.kept -= s.size
		return true
	})
}

// end is the offset of the next event. For a log that is not loaded yet it is the
// last saved one; reading finds output that followed.
func (l *eventLog) end() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// sizes returns the offset of the next event, and how many bytes of events there were and are kept.
func (l *eventLog) sizes() (next, written, kept int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next, l.written, l.kept
}

// size is what the log occupies, in bytes.
func (l *eventLog) size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// close closes the file; a late event opens it again.
func (l *eventLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeFileLocked()
	l.recent = nil
}

func (l *eventLog) closeFileLocked() {
	if l.file != nil {
		l.file.Close()
		l.file, l.lastLocked().file = nil, nil
	}
}

// drop deletes all events. A reader gets one gap.
func (l *eventLog) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.loadLocked()
	l.closeFileLocked()
	for _, s := range l.segments {
		os.Remove(s.path)
	}
	l.releaseMemoryLocked()
	l.segments, l.kept, l.recent = nil, 0, nil
}

// retire ends all writing, because the execution is forgotten.
func (l *eventLog) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeFileLocked()
	l.releaseMemoryLocked()
	l.retired, l.recent = true, nil
}

const (
	// maxRecent bounds a log that is in memory too, in bytes of its lines and eventOverhead
	// for each event. Only open logs are, of which there are about 20.
	maxRecent     = 64 << 10
	eventOverhead = 512
)

// recent is a complete log in memory, so that the answer to a quick run reads no file.
type recent struct {
	events []contract.Event
	sizes  []int64 // of their lines
	cost   int64
}

// add reports whether there was room for the event, whose line has size bytes.
func (r *recent) add(event contract.Event, size int64) bool {
	r.events, r.sizes = append(r.events, event), append(r.sizes, size)
	r.cost += size + eventOverhead
	return r.cost <= maxRecent
}

// read returns what logReader reads from the files.
func (r *recent) read(offset, maxBytes int64) ([]contract.Event, int64) {
	end := func(i int) int64 { return r.events[i].Offset + offsets(r.events[i]) }
	from := sort.Search(len(r.events), func(i int) bool { return end(i) > offset })
	to := from
	for ; to < len(r.events) && maxBytes > 0; to++ {
		maxBytes -= r.sizes[to]
		offset = end(to)
	}
	return append([]contract.Event{}, r.events[from:to]...), offset
}

// maxUnwritten bounds the events of one execution that wait in memory while the disk
// is full, in bytes. Later output is lost, and the execution's reason says so.
const maxUnwritten = 4 << 20

// writeToMemoryLocked keeps a line in memory, in a separate segment.
func (l *eventLog) writeToMemoryLocked(line []byte) error {
	n := int64(len(line))
	if l.unwritten+n > maxUnwritten || !l.late.allocate(n) {
		return syscall.ENOSPC
	}
	last := l.lastLocked()
	if last == nil || last.unwritten == nil {
		l.closeFileLocked()
		if last != nil && last.size == 0 { // the file could be made, but nothing written to it
			l.segments = l.segments[:len(l.segments)-1]
		}
		last = newSegment(l.dir, l.next, l.written)
		last.unwritten = []byte{}
		l.segments = append(l.segments, last)
	}
	last.unwritten = append(last.unwritten, line...)
	l.unwritten += n
	return nil
}

// inMemory reports whether some events are in memory only.
func (l *eventLog) inMemory() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unwritten > 0
}

// flush writes the events that wait in memory.
func (l *eventLog) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.unwritten == nil {
			continue
		}
		if err := os.MkdirAll(l.dir, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(s.path, s.unwritten, 0o600); err != nil {
			return errors.Join(err, os.Remove(s.path))
		}
		s.unwritten = nil
	}
	l.releaseMemoryLocked()
	return nil
}

func (l *eventLog) releaseMemoryLocked() {
	if l.unwritten > 0 {
		l.late.allocate(-l.unwritten)
		l.unwritten = 0
	}
}
