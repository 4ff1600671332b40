package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// contents is all that is kept of a run.
type contents struct {
	head   head
	state  contract.Execution // the last one
	events []contract.Event   // as they are in the files
	have   ranges.Set         // their offsets
	total  int64              // offset after the last event; 0 while it is unknown
	sizes  map[string]int64   // of the files, by suffix
}

// read reads a run's files. Their size is bounded by what a writer appends.
func read(dir, key string) (*contents, error) {
	c := &contents{sizes: map[string]int64{}}
	for _, suffix := range suffixes {
		err := c.readFile(filepath.Join(dir, key+suffix), suffix)
		if err != nil && (suffix == headSuffix || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
	switch c.head.Version {
	case version:
		return c, nil
	case 0:
		return nil, fmt.Errorf("the file %q %w", key+headSuffix, errNoHead)
	}
	return nil, fmt.Errorf("the file %q is not one of this release", key+headSuffix)
}

// errNoHead means that another program has created the file and not yet written the first line, or
// was killed while it did.
var errNoHead = errors.New("has no first line yet")

func (c *contents) readFile(path, suffix string) error {
	f, err := bounded.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReaderSize(io.LimitReader(f, 2*maxRunBytes), 64<<10)
	for {
		text, size, err := bounded.ReadLine(lines, maxLine)
		c.sizes[suffix] += size
		var l line
		if decode(text, &l) == nil {
			c.add(l)
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// decode reads a complete line.
func decode(text []byte, l *line) error {
	if !bytes.HasSuffix(text, []byte("\n")) {
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(text, l)
}

func (c *contents) add(l line) {
	switch {
	case l.Head != nil && c.head.Version == 0:
		c.head = *l.Head
	case l.State != nil:
		next, ok := follows(c.state, *l.State)
		if !ok { // another relay wrote it, which did not know the end
			return
		}
		if c.state = next; ended(next) {
			c.total = next.NextOffset
		}
	case l.Event != nil:
		if at, ok := rangeOf(l.Event); ok && (!ended(c.state) || at.End() <= c.total) {
			c.have = extend(c.have, at)
			c.events = append(c.events, *l.Event)
		}
	}
}

// ended reports whether a state says that the run has no more events than those before its
// NextOffset.
func ended(state contract.Execution) bool {
	return state.End && state.Status != "" && state.Status.Finished()
}

// follows returns the state of a run after the last one and a later answer's. The first outcome
// stands: an answer after it may only say where the events end, and none is accepted after that.
func follows(last, later contract.Execution) (state contract.Execution, ok bool) {
	switch {
	case last.Status == "":
		return later, true
	case ended(last):
		return last, false
	case last.Status.Finished() && later.Status == last.Status:
		last.End, last.NextOffset = later.End, max(last.NextOffset, later.NextOffset)
		return last, true
	case last.Status.Finished():
		return last, false
	}
	return later, true
}

// notKept is the Cut of a gap that stands for events missing from the history.
const notKept = "this laptop's history does not have this output"

// ordered returns the events by offset, each once, with gaps for those that are missing.
func (c *contents) ordered() []contract.Event {
	sort.SliceStable(c.events, func(i, j int) bool {
		a, b := c.events[i], c.events[j]
		if a.Offset == b.Offset {
			return a.Type != contract.EventGap && b.Type == contract.EventGap
		}
		return a.Offset < b.Offset
	})
	var all []contract.Event
	next := int64(0)
	fill := func(to int64) {
		if to > next {
			all = append(all, contract.Event{Offset: next, Type: contract.EventGap, Events: to - next, Cut: notKept})
			next = to
		}
	}
	known := c.nextKnown()
	for i, ev := range c.events {
		at, _ := rangeOf(&ev)
		if at.End() <= next {
			continue
		}
		fill(at.Offset)
		if ev.Type == contract.EventGap { // other events may be known within it
			ev.Offset = next
			ev.Events = min(at.End(), known[i]) - next
			if ev.Events <= 0 {
				continue
			}
			at.Length = ev.Events + next - at.Offset
		}
		all = append(all, ev)
		next = at.End()
	}
	fill(c.total)
	return all
}

// nextKnown returns, for each of the sorted events, the offset of the first from it on that is
// no gap.
func (c *contents) nextKnown() []int64 {
	known := make([]int64, len(c.events))
	offset := int64(maxOffset)
	for i, ev := range slices.Backward(c.events) {
		if ev.Type != contract.EventGap {
			offset = ev.Offset
		}
		known[i] = offset
	}
	return known
}

// missing returns the offsets of the events that are not in the history. Those of a run whose
// end is unknown include everything after the last one.
func (c *contents) missing() ranges.Set {
	end := c.total
	if end == 0 {
		end = maxOffset
	}
	return c.have.Missing(contract.Range{Length: end})
}

func (c *contents) run(key string) Run {
	e := c.state
	e.ExecutionID, e.RequestID = c.head.ExecutionID, c.head.RequestID
	e.Status = cmp.Or(e.Status, contract.StatusQueued) // a program was killed before it wrote more
	return Run{
		Execution: e, Runtime: c.head.Runtime, InstanceID: c.head.InstanceID, Recorded: c.head.Recorded,
		Internal: c.head.Internal, Name: c.head.Name, Code: c.head.Code, CodeCut: c.head.CodeCut, key: key,
	}
}
