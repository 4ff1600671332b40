package execution

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"colabrelay/shared/contract"
)

// eventLog is the events of one execution: NDJSON in segment files that are only
// appended to. When the log passes its limit, the oldest segments after the
// first half of the limit are deleted: what began the output and what ended it
// stay, and a gap event is read where the middle was.
type eventLog struct {
	dir   string
	limit int64

	mu       sync.Mutex
	loaded   bool
	segments []*segment
	next     int64 // offset of the next event
	written  int64 // bytes ever written
	kept     int64 // bytes on disk, and held
	w        *os.File
	reserve  *reserve // nil for a log that is not written to
	held     int64    // bytes in memory, for want of room on disk
	retired  bool     // nothing is written any more
}

// segmentsPerLog is how finely the limit is divided.
const segmentsPerLog = 16

// freshLog is an empty log whose first segment is open already.
func freshLog(f *folder, limit int64, r *reserve) *eventLog {
	l := &eventLog{dir: f.dir, limit: limit, loaded: true, reserve: r}
	if f.events != nil {
		first := newSegment(f.dir, 0, 0)
		first.open, l.w = f.events, f.events
		l.segments = append(l.segments, first)
	}
	return l
}

// openLog is the log that an earlier executor kept in dir. next is its end as
// last written down, for a log whose segments were dropped.
func openLog(dir string, limit, next int64, r *reserve) *eventLog {
	l := &eventLog{dir: dir, limit: limit, next: next, reserve: r}
	for _, s := range listSegments(dir) {
		l.kept += s.size
		l.segments = append(l.segments, s)
		l.written = max(l.written, s.start+s.size)
		l.next = max(l.next, s.first)
	}
	return l
}

// load counts what the last segment holds: late output may have come after the
// state's last line was written. The lock is held.
func (l *eventLog) load() error {
	if l.loaded {
		return nil
	}
	l.dropMissing()
	if n := len(l.segments); n > 0 {
		last := l.segments[n-1]
		if err := last.index(); err != nil {
			return err
		}
		l.next = max(l.next, last.end)
	}
	l.loaded = true
	return nil
}

// repair cuts off a last line that a kill tore.
func (l *eventLog) repair() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.segments); n > 0 {
		last := l.segments[n-1]
		if err := cutTornLine(last.path); err != nil {
			return err
		}
		info, err := os.Stat(last.path)
		if err != nil {
			return err
		}
		l.kept += info.Size() - last.size
		l.written += info.Size() - last.size
		last.size = info.Size()
	}
	l.loaded = false
	return l.load()
}

// append gives the event its offset and writes it. A gap takes as many offsets
// as it stands for. held says that the disk is full, and that the event is in memory.
func (l *eventLog) append(event contract.Event) (held bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return false, fs.ErrNotExist
	}
	if err := l.load(); err != nil {
		return false, err
	}
	event.Offset = l.next
	line, err := json.Marshal(event)
	if err != nil {
		return false, err
	}
	if len(line) > contract.MaxEventBytes { // no kind of event should come here
		event = contract.Event{Offset: event.Offset, Time: event.Time, Type: contract.EventGap, Bytes: int64(len(line)), Events: 1}
		if line, err = json.Marshal(event); err != nil {
			return false, err
		}
	}
	line = append(line, '\n')
	if err := l.put(line); err != nil {
		return false, err
	}
	l.next += max(1, event.Events)
	l.last().grew(event.Offset, int64(len(line)), l.next)
	l.kept += int64(len(line))
	l.written += int64(len(line))
	return l.held > 0, nil
}

// put writes a line to the last segment, or holds it in memory where the disk is full.
func (l *eventLog) put(line []byte) error {
	if last := l.last(); last == nil || last.held == nil {
		if err := l.toFile(line); !isFull(err) {
			return err
		}
	}
	return l.hold(line)
}

func (l *eventLog) toFile(line []byte) error {
	seg, err := l.writable(int64(len(line)))
	if err != nil {
		return err
	}
	if n, err := l.w.Write(line); err != nil {
		if n > 0 { // a full disk: no half line may stand before the next one
			_ = l.w.Truncate(seg.size)
		}
		return err
	}
	return nil
}

// writable is the segment that takes n more bytes; a new one when the last is
// full, and then the middle is thinned.
func (l *eventLog) writable(n int64) (*segment, error) {
	last := l.last()
	if last == nil || last.size > 0 && last.size+n > l.limit/segmentsPerLog {
		l.closeFile()
		l.thin()
		last = newSegment(l.dir, l.next, l.written)
		l.segments = append(l.segments, last)
	}
	if l.w != nil && deleted(l.w) {
		if err := l.comeBack(last); err != nil {
			return nil, err
		}
	}
	if l.w == nil {
		w, err := openAppend(last.path)
		if errors.Is(err, fs.ErrNotExist) && os.MkdirAll(l.dir, 0o700) == nil {
			w, err = openAppend(last.path)
		}
		if err != nil {
			return nil, err
		}
		l.w, last.open = w, w
	}
	return last, nil
}

func (l *eventLog) last() *segment {
	if len(l.segments) == 0 {
		return nil
	}
	return l.segments[len(l.segments)-1]
}

// thin makes room for one more segment.
func (l *eventLog) thin() {
	const head = segmentsPerLog / 2
	for len(l.segments) > head && l.kept+l.limit/segmentsPerLog > l.limit {
		old := l.segments[head]
		if err := os.Remove(old.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
		l.kept -= old.size
		l.segments = append(l.segments[:head], l.segments[head+1:]...)
	}
}

// read returns whole events from offset on, about maxBytes of them and one at
// the least, and the offset after them.
func (l *eventLog) read(offset, maxBytes int64) ([]contract.Event, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.load(); err != nil {
		return nil, 0, err
	}
	l.dropMissing()
	events := []contract.Event{}
	before := int64(0) // bytes written before the gap that may come
	for _, s := range l.segments {
		if err := s.index(); err != nil {
			return nil, 0, err
		}
		if offset < s.first {
			events = append(events, gap(offset, s.first, s.start-before))
			offset = s.first
		}
		before = s.start + s.size
		if offset >= s.end {
			continue
		}
		more, used, err := s.read(offset, maxBytes)
		if err != nil {
			return nil, 0, fmt.Errorf("segment of offset %d: %w", s.first, err)
		}
		events = append(events, more...)
		if n := len(more); n > 0 {
			offset = more[n-1].Offset + max(1, more[n-1].Events)
		}
		if maxBytes -= used; maxBytes <= 0 {
			return events, offset, nil
		}
	}
	if offset < l.next {
		events = append(events, gap(offset, l.next, l.written-before))
		offset = l.next
	}
	return events, offset, nil
}

func gap(from, to, bytes int64) contract.Event {
	return contract.Event{Offset: from, Type: contract.EventGap, Bytes: bytes, Events: to - from}
}

// end is the offset the next event will have. Of a log not read yet it is what
// was last written down: late output after that is found by reading.
func (l *eventLog) end() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// everWritten is how many bytes of events there have been.
func (l *eventLog) everWritten() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written
}

// size is what the log takes on disk, in bytes.
func (l *eventLog) size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// close lets go of the file; a late event opens it again.
func (l *eventLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeFile()
}

func (l *eventLog) closeFile() {
	if l.w != nil {
		l.w.Close()
		l.w, l.last().open = nil, nil
	}
}

// drop deletes all events. Reading them then gives one gap.
func (l *eventLog) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.load()
	l.closeFile()
	for _, s := range l.segments {
		os.Remove(s.path)
	}
	l.letGo()
	l.segments, l.kept = nil, 0
}
