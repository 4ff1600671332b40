package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// segment is one file of an event log. Its name says where it belongs even when
// others were deleted: the offset of its first event, and how many bytes of events
// precede it.
type segment struct {
	path  string
	first int64
	start int64
	size  int64

	file      *os.File // set while the log writes to it: it can be read even if it was deleted
	unwritten []byte   // the content while it is in memory only, else nil

	indexed bool
	end     int64  // offset after the last event
	count   int    // of events
	marks   []mark // the place of every markEvery-th event
}

type mark struct{ offset, position int64 }

const markEvery = 64

const segmentName = "events-%d-%d.ndjson"

func newSegment(dir string, first, start int64) *segment {
	name := fmt.Sprintf(segmentName, first, start)
	return &segment{path: filepath.Join(dir, name), first: first, start: start, end: first, indexed: true}
}

// listSegments returns the segments in dir in their order.
func listSegments(dir string) []*segment {
	paths, _ := filepath.Glob(filepath.Join(dir, "events-*.ndjson"))
	var all []*segment
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

// grow counts an event that was written.
func (s *segment) grow(offset, bytes, end int64) {
	if s.count%markEvery == 0 {
		s.marks = append(s.marks, mark{offset, s.size})
	}
	s.count++
	s.size += bytes
	s.end = end
}

// index finds the places of the events, if it has not done so yet.
func (s *segment) index() error {
	if s.indexed {
		return nil
	}
	s.end, s.count, s.marks = s.first, 0, nil
	size := s.size
	s.size = 0
	err := s.each(0, func(line []byte, n int64) (more bool) {
		var e struct {
			Type           contract.EventType
			Offset, Events int64
		}
		if json.Unmarshal(line, &e) == nil && e.Type != "" && s.follows(e.Offset, e.Events) {
			s.grow(e.Offset, n, e.Offset+max(1, e.Events))
		} else {
			s.size += n
		}
		return s.size < size
	})
	s.size = size
	s.indexed = err == nil
	return err
}

// maxOffset is far above the offset of any event, so that sums do not overflow.
const maxOffset = 1 << 53

// follows reports whether an event may follow those before it. One that does not was not
// written by an executor.
func (s *segment) follows(offset, events int64) bool {
	return offset >= s.end && offset < maxOffset && events >= 0 && events < maxOffset
}

// read returns events from offset on, until they exceed maxBytes. A gap stands for damaged
// lines before an event.
func (s *segment) read(offset, maxBytes int64) (events []contract.Event, used int64, err error) {
	i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].offset > offset })
	position := int64(0)
	if i > 0 {
		position = s.marks[i-1].position
	}
	lost, next := int64(0), s.first // next is the offset after the event before
	if i > 0 {
		next = s.marks[i-1].offset
	}
	err = s.each(position, func(line []byte, n int64) (more bool) {
		position += n
		var e contract.Event
		if json.Unmarshal(line, &e) != nil || e.Type == "" || e.Offset < next || e.Offset >= s.end {
			lost += n
			return position < s.size
		}
		if e.Offset > max(next, offset) {
			from := max(next, offset)
			events = append(events, contract.Event{Offset: from, Type: contract.EventGap, Bytes: lost, Events: e.Offset - from})
		}
		lost, next = 0, e.Offset+offsets(e)
		if next <= offset {
			return position < s.size
		}
		events = append(events, e)
		used += n
		return used < maxBytes && position < s.size
	})
	return events, used, err
}

// each calls f with every complete line from position on, including its newline, and with
// the line's size, until f returns false. The text of a line of over maxLine is nil.
func (s *segment) each(position int64, f func(line []byte, size int64) (more bool)) error {
	content, closeContent, err := s.content()
	if err != nil {
		return err
	}
	defer closeContent()
	section := io.NewSectionReader(content, position, math.MaxInt64-position) // before index the size is unknown
	buffer := min(64<<10, max(4<<10, s.size-position))                        // most logs are short
	lines := bufio.NewReaderSize(section, int(buffer))
	for {
		line, size, err := bounded.ReadLine(lines, maxLine)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil || !f(line, size) {
			return err
		}
	}
}

func (s *segment) content() (content io.ReaderAt, closeContent func(), err error) {
	nothing := func() {}
	if s.unwritten != nil {
		return bytes.NewReader(s.unwritten), nothing, nil
	}
	if s.file != nil {
		return s.file, nothing, nil
	}
	file, err := bounded.Open(s.path)
	if err != nil {
		return nil, nothing, err
	}
	return file, func() { file.Close() }, nil
}

// logReader gathers events from segment after segment.
type logReader struct {
	events []contract.Event
	offset int64 // of the next event to read
	passed int64 // bytes of the log up to the end of the last segment
	room   int64 // bytes of events to read
}

// read returns complete events from offset on, about maxBytes of them but at least
// one, and the offset after them.
func (l *eventLog) read(offset, maxBytes int64) ([]contract.Event, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recent != nil {
		events, next := l.recent.read(offset, maxBytes)
		return events, next, nil
	}
	if err := l.loadLocked(); err != nil {
		return nil, 0, err
	}
	l.dropMissingLocked()
	r := logReader{events: []contract.Event{}, offset: offset, room: maxBytes}
	for _, s := range l.segments {
		if err := r.read(s); err != nil {
			return nil, 0, fmt.Errorf("segment of offset %d: %w", s.first, err)
		}
		if r.room <= 0 {
			return r.events, r.offset, nil
		}
	}
	r.skipTo(l.next, l.written)
	return r.events, r.offset, nil
}

// read reads a segment, and a gap if segments before it are missing.
func (r *logReader) read(s *segment) error {
	if err := s.index(); err != nil {
		return err
	}
	r.skipTo(s.first, s.start)
	r.passed = s.start + s.size
	if r.offset >= s.end {
		return nil
	}
	events, used, err := s.read(r.offset, r.room)
	if err != nil {
		return err
	}
	r.events = append(r.events, events...)
	r.room -= used
	if n := len(events); n > 0 {
		r.offset = events[n-1].Offset + offsets(events[n-1])
	}
	return nil
}

// skipTo adds a gap up to the event at offset, which begins position bytes into the
// log, unless that is the next event to read.
func (r *logReader) skipTo(offset, position int64) {
	if r.offset < offset {
		r.events = append(r.events, contract.Event{
			Offset: r.offset, Type: contract.EventGap, Bytes: position - r.passed, Events: offset - r.offset,
		})
		r.offset = offset
	}
}

// isTorn reports whether text can be the beginning of an event's line that a kill has torn. Lines
// are JSON objects, which have no control characters.
func isTorn(text []byte) bool {
	const begins = `{"offset":`
	n := min(len(text), len(begins))
	return len(text) < maxLine && string(text[:n]) == begins[:n] && !slices.ContainsFunc(text, func(b byte) bool { return b < ' ' })
}

// cutTornLine truncates the file of a segment after its last newline. If what follows that is not the
// beginning of an event, it stays, and the error is errDamaged.
func cutTornLine(path string) error {
	f, err := bounded.OpenFile(path, os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	from := max(0, size-maxLine)
	end := make([]byte, size-from)
	if _, err := f.ReadAt(end, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	whole := bytes.LastIndexByte(end, '\n') + 1
	if !isTorn(end[whole:]) {
		return fmt.Errorf("%w: the end of %q is not a line", errDamaged, path)
	}
	if whole == len(end) {
		return nil
	}
	return f.Truncate(from + int64(whole))
}
