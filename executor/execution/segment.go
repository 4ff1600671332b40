package execution

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"colabrelay/shared/contract"
)

// segment is one file of a log. Its name holds all that must be known of it
// once others are deleted: the offset of its first event, and how many bytes of
// the log came before.
type segment struct {
	path  string
	first int64
	start int64
	size  int64

	open *os.File // the log's handle of the last one, which reads it when it was deleted
	held []byte   // what is in memory, for want of room on disk; nil when it is in the file

	indexed bool
	end     int64  // offset after its last event
	count   int    // events
	marks   []mark // where every markEvery-th event begins
}

type mark struct{ offset, position int64 }

const markEvery = 64

const segmentName = "events-%d-%d.ndjson"

func newSegment(dir string, first, start int64) *segment {
	name := fmt.Sprintf(segmentName, first, start)
	return &segment{path: filepath.Join(dir, name), first: first, start: start, end: first, indexed: true}
}

// listSegments finds a log's files in their order.
func listSegments(dir string) []*segment {
	paths, _ := filepath.Glob(filepath.Join(dir, "events-*.ndjson"))
	var all []*segment
	for _, path := range paths {
		s := &segment{path: path}
		if _, err := fmt.Sscanf(filepath.Base(path), segmentName, &s.first, &s.start); err != nil {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		s.size = info.Size()
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *segment) int { return int(min(1, max(-1, a.first-b.first))) })
	return all
}

// grew notes an event just written.
func (s *segment) grew(offset, bytes, end int64) {
	if s.count%markEvery == 0 {
		s.marks = append(s.marks, mark{offset, s.size})
	}
	s.count++
	s.size += bytes
	s.end = end
}

// index reads the file once to learn where its events are.
func (s *segment) index() error {
	if s.indexed {
		return nil
	}
	s.end, s.count, s.marks = s.first, 0, nil
	size := s.size
	s.size = 0
	err := s.each(0, func(line []byte) (bool, error) {
		var e struct {
			Offset int64
			Events int64
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return false, err
		}
		s.grew(e.Offset, int64(len(line)), e.Offset+max(1, e.Events))
		return s.size < size, nil
	})
	s.size = size
	s.indexed = err == nil
	return err
}

// read returns the events from offset on until they pass maxBytes.
func (s *segment) read(offset, maxBytes int64) (events []contract.Event, used int64, err error) {
	i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].offset > offset })
	position := int64(0)
	if i > 0 {
		position = s.marks[i-1].position
	}
	err = s.each(position, func(line []byte) (bool, error) {
		var e contract.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return false, err
		}
		position += int64(len(line))
		if e.Offset+max(1, e.Events) <= offset {
			return position < s.size, nil
		}
		events = append(events, e)
		used += int64(len(line))
		return used < maxBytes && position < s.size, nil
	})
	return events, used, err
}

// each calls f with every whole line from position on, its newline included,
// until f returns false.
func (s *segment) each(position int64, f func(line []byte) (more bool, err error)) error {
	content, done, err := s.content()
	if err != nil {
		return err
	}
	defer done()
	// Of a segment not counted yet the size isn't known.
	from := io.NewSectionReader(content, position, math.MaxInt64-position)
	lines := bufio.NewReaderSize(from, readBuffer(s.size-position))
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if more, err := f(line); err != nil || !more {
			return err
		}
	}
}

// content is where the segment's bytes are.
func (s *segment) content() (content io.ReaderAt, done func(), err error) {
	nothing := func() {}
	if s.held != nil {
		return bytes.NewReader(s.held), nothing, nil
	}
	if s.open != nil {
		return s.open, nothing, nil
	}
	file, err := os.Open(s.path)
	if err != nil {
		return nil, nothing, err
	}
	return file, func() { file.Close() }, nil
}

// readBuffer suits what is left to read: most logs are a few hundred bytes. Of a
// segment not yet counted the size isn't known.
func readBuffer(left int64) int { return int(min(64<<10, max(4<<10, left))) }

// cutTornLine truncates a file after its last newline.
func cutTornLine(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for end > 0 {
		n := min(end, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return f.Truncate(end - n + int64(i) + 1)
		}
		end -= n
	}
	return f.Truncate(0)
}
