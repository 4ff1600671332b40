package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"sync"
	"syscall"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

const (
	// maxSegment bounds a segment with more than one event, in bytes: a reader decodes at most so
	// much of what comes before the offset that it asks for.
	maxSegment = 256 << 10
	// minSegments is how many segments fill a log up to its limit, at least.
	minSegments = 16
	// maxUnwritten bounds the events of one execution that wait in memory while the disk
	// is full, in bytes. Later output is lost, and the execution's reason says so.
	maxUnwritten = 4 << 20
)

// eventLog is the events of one execution: NDJSON in segment files that are only
// appended to. Past its limit, segments from the middle are deleted: the beginning
// and the end of the output are kept, and a reader gets a gap event in between.
type eventLog struct {
	dir   string
	limit int64
	late  *late // bounds what is in memory

	mu        sync.Mutex
	loaded    bool
	segments  []*segment
	next      int64       // offset of the next event
	written   int64       // bytes of all events so far
	kept      int64       // bytes of them that are still kept
	file      *os.File    // of the last segment; nil while it is not open
	is        fs.FileInfo // the file, when it was opened
	unwritten int64       // bytes in memory, because the disk is full
	retired   bool        // nothing is written any more
}

// segment is one file of an event log. Its name says where it belongs even when others were
// deleted.
type segment struct {
	path      string
	first     int64  // offset of its first event
	start     int64  // bytes of events that precede it
	size      int64  // bytes
	unwritten []byte // the content while it is in memory only, else nil
}

const segmentName = "events-%d-%d.ndjson"

// nextSegmentLocked makes the segment of the next event.
func (l *eventLog) nextSegmentLocked() *segment {
	s := &segment{path: filepath.Join(l.dir, fmt.Sprintf(segmentName, l.next, l.written)), first: l.next, start: l.written}
	l.segments = append(l.segments, s)
	return s
}

// listSegments returns the segments in dir in their order.
func listSegments(dir string) (all []*segment) {
	paths, _ := filepath.Glob(filepath.Join(dir, "events-*.ndjson"))
	for _, path := range paths {
		s := &segment{path: path}
		if _, err := fmt.Sscanf(filepath.Base(path), segmentName, &s.first, &s.start); err != nil {
			continue
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue // a reader gets a gap
		}
		s.size = info.Size()
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *segment) int { return cmp.Compare(a.first, b.first) })
	return all
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
		l.written = max(l.written, last.start+last.size)
		l.next = max(l.next, last.first)
		err := l.eachLocked(last, maxOffset, func(e contract.Event, _, _ int64) bool {
			l.next = max(l.next, e.Offset+offsets(e))
			return true
		})
		if err != nil {
			return err
		}
	}
	l.loaded = true
	return nil
}

// open makes the log's folder and its first file. If that fails, the first event tries it again.
func (l *eventLog) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded && len(l.segments) == 0 && l.openLocked(l.nextSegmentLocked()) != nil {
		l.segments = nil
	}
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
	l.lastLocked().size += size
	l.next += offsets(event)
	l.kept += size
	l.written += size
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
	last, most := l.lastLocked(), min(maxSegment, l.limit/minSegments)
	if last == nil || last.size > 0 && last.size+int64(len(line)) > most {
		l.closeFileLocked()
		l.dropMiddleLocked(most)
		last = l.nextSegmentLocked()
	}
	if l.file == nil || gone(l.is, last.path) {
		if err := l.openLocked(last); err != nil {
			return err
		}
	}
	n, err := l.file.Write(line)
	if err != nil && n > 0 { // a partial line must not precede the next one
		_ = l.file.Truncate(last.size)
	}
	return err
}

// openLocked opens the file of the last segment. If the file was deleted while it was open, it is made
// again with its content.
func (l *eventLog) openLocked(last *segment) error {
	if err := os.Mkdir(l.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) { // mostly the log's first file
		if err := os.MkdirAll(l.dir, 0o700); err != nil {
			return err
		}
	}
	file, err := openAppend(last.path)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if l.file != nil {
		if _, err := io.Copy(file, io.NewSectionReader(l.file, 0, last.size)); err != nil {
			return errors.Join(err, file.Close(), os.Remove(last.path))
		}
		l.file.Close()
	}
	l.file, l.is = file, info
	return nil
}

// openAppend opens a file to append to it. Not by os.OpenFile, which tries in five system calls
// whether the runtime's poller can have it.
func openAppend(path string) (*os.File, error) {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_APPEND|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// lastLocked is the segment that is written to, nil if there is none.
func (l *eventLog) lastLocked() *segment {
	if len(l.segments) == 0 {
		return nil
	}
	return l.segments[len(l.segments)-1]
}

// dropMiddleLocked makes room for so many bytes. The first half of the limit stays.
func (l *eventLog) dropMiddleLocked(bytes int64) {
	middle := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].start >= l.limit/2 })
	for middle < len(l.segments) && l.kept+bytes > l.limit {
		old := l.segments[middle]
		if err := os.Remove(old.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
		l.kept -= old.size
		l.segments = slices.Delete(l.segments, middle, middle+1)
	}
}

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
		last = l.nextSegmentLocked()
		last.unwritten = []byte{}
	}
	last.unwritten = append(last.unwritten, line...)
	l.unwritten += n
	return nil
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
	l.late.allocate(-l.unwritten)
	l.unwritten = 0
}

// inMemory reports whether some events are in memory only.
func (l *eventLog) inMemory() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unwritten > 0
}

// end is the offset of the next event. For a log that is not loaded yet it is the
// last saved one; reading finds output that followed.
func (l *eventLog) end() int64 {
	next, _, _ := l.sizes()
	return next
}

// sizes returns the offset of the next event, and how many bytes of events there were and are kept.
func (l *eventLog) sizes() (next, written, kept int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next, l.written, l.kept
}

// close closes the file; a late event opens it again.
func (l *eventLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeFileLocked()
}

func (l *eventLog) closeFileLocked() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
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
	l.segments, l.kept = nil, 0
}

// retire ends all writing, because the execution is forgotten.
func (l *eventLog) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeFileLocked()
	l.releaseMemoryLocked()
	l.retired = true
}

// read returns complete events from offset on, about maxBytes of them but at least
// one, and the offset after them. A gap stands for events that are missing or damaged.
func (l *eventLog) read(offset, maxBytes int64) (events []contract.Event, next int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loadLocked(); err != nil {
		return nil, 0, err
	}
	events, next = []contract.Event{}, offset
	passed := int64(0) // bytes of the log before the next event
	skipTo := func(offset, position int64) {
		if next < offset {
			events = append(events, contract.Event{Offset: next, Type: contract.EventGap, Bytes: position - passed, Events: offset - next})
			next = offset
		}
	}
	from := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].first > offset })
	for i := max(0, from-1); i < len(l.segments) && maxBytes > 0; i++ {
		s, end := l.segments[i], l.next
		if i+1 < len(l.segments) {
			end = l.segments[i+1].first
		}
		err := l.eachLocked(s, end, func(e contract.Event, position, size int64) (more bool) {
			after := e.Offset + offsets(e)
			if after > next {
				skipTo(e.Offset, position)
				events, next = append(events, e), after
				maxBytes -= size
			}
			passed = position + size
			return maxBytes > 0
		})
		if err != nil {
			return nil, 0, fmt.Errorf("segment of offset %d: %w", s.first, err)
		}
	}
	if maxBytes > 0 {
		skipTo(l.next, l.written)
	}
	return events, next, nil
}

// maxOffset is far above the offset of any event, so that sums do not overflow.
const maxOffset = 1 << 53

// eachLocked calls f with every event of a segment, its place in the log and its size in bytes, until f
// returns false. Lines that are no events, or whose offsets are not between those before them and end,
// were not written by an executor, or were torn by a kill.
func (l *eventLog) eachLocked(s *segment, end int64, f func(e contract.Event, position, size int64) (more bool)) error {
	content, closeContent, err := l.contentLocked(s)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, bounded.ErrNotFile) {
		return nil // a reader gets a gap
	}
	if err != nil {
		return err
	}
	defer closeContent()
	buffer := min(64<<10, max(4<<10, s.size)) // most logs are short
	lines := bufio.NewReaderSize(io.NewSectionReader(content, 0, s.size), int(buffer))
	for position, next := s.start, s.first; ; {
		line, size, err := bounded.ReadLine(lines, maxLine)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var e contract.Event
		if json.Unmarshal(line, &e) == nil && e.Type != "" && e.Offset >= next && e.Offset < end && e.Events >= 0 && e.Events <= end-e.Offset {
			next = e.Offset + offsets(e)
			if !f(e, position, size) {
				return nil
			}
		}
		position += size
	}
}

// contentLocked opens a segment. The last one can be read while it is open, even if it was deleted.
func (l *eventLog) contentLocked(s *segment) (content io.ReaderAt, closeContent func(), err error) {
	switch {
	case s.unwritten != nil:
		return bytes.NewReader(s.unwritten), func() {}, nil
	case s == l.lastLocked() && l.file != nil:
		return l.file, func() {}, nil
	}
	file, err := bounded.Open(s.path)
	if err != nil {
		return nil, nil, err
	}
	return file, func() { file.Close() }, nil
}

// blobStore keeps the payloads of one execution that are too big for an event, each
// in a file named by its number.
type blobStore struct {
	dir   string // of the execution
	limit int64

	mu    sync.Mutex
	used  int64
	last  int                      // the highest number in use
	known map[string]contract.Blob // by SHA-256, so that a repeated payload has one file; at most contract.MaxBlobs
}

// measure finds the size of what an earlier executor left.
func (b *blobStore) measure() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = 0
	names, _ := os.ReadDir(b.folder())
	for _, name := range names {
		if info, err := name.Info(); err == nil {
			b.used += info.Size()
		}
	}
}

func (b *blobStore) folder() string { return filepath.Join(b.dir, "blobs") }

func (b *blobStore) path(number int) string { return filepath.Join(b.folder(), strconv.Itoa(number)) }

func (b *blobStore) open(number int) (*os.File, error) {
	if number < 1 || number > contract.MaxBlobs {
		return nil, ErrNoBlob
	}
	f, err := bounded.Open(b.path(number))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, bounded.ErrNotFile) {
		return nil, ErrNoBlob
	}
	return f, err
}

var errBlobsFull = errors.New("the execution has no room left for big payloads")

// put keeps what write writes, at most size bytes, under the next number, unless the
// execution has an equal payload already.
func (b *blobStore) put(size int64, write func(io.Writer) error) (contract.Blob, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+size > b.limit || b.last >= contract.MaxBlobs {
		return contract.Blob{}, errBlobsFull
	}
	if err := os.MkdirAll(b.folder(), 0o700); err != nil {
		return contract.Blob{}, err
	}
	f, err := os.CreateTemp(b.folder(), "partial-")
	if err != nil {
		return contract.Blob{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	digest := sha256.New()
	if err := write(io.MultiWriter(f, digest)); err != nil {
		return contract.Blob{}, err
	}
	written, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return contract.Blob{}, err
	}
	return b.nameLocked(f.Name(), contract.Blob{SHA256: hex.EncodeToString(digest.Sum(nil)), Bytes: written})
}

// nameLocked gives a written payload its number and its file's name, unless an equal one
// has them. That one's file is checked, because a user may have deleted the state folder.
func (b *blobStore) nameLocked(written string, blob contract.Blob) (contract.Blob, error) {
	if same, ok := b.known[blob.SHA256]; ok {
		if _, err := os.Stat(b.path(same.Number)); err == nil {
			return same, nil
		}
	}
	blob.Number = b.last + 1
	if err := os.Rename(written, b.path(blob.Number)); err != nil {
		return contract.Blob{}, err
	}
	if b.known == nil {
		b.known = map[string]contract.Blob{}
	}
	b.known[blob.SHA256] = blob
	b.last = blob.Number
	b.used += blob.Bytes
	return blob, nil
}

// forget frees the memory of a store that may get no more payloads.
func (b *blobStore) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = nil
}

func (b *blobStore) size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// drop deletes all payloads. Their numbers are not used again.
func (b *blobStore) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	os.RemoveAll(b.folder())
	b.used, b.known = 0, nil
}
