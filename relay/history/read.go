package history

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
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
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// ErrNotFound: the history has no such run, or no longer.
var ErrNotFound = errors.New("no such run in the history")

// Run is one run in the history. Every text in it comes from an executor or from the run's
// code: plain cleans it for a terminal.
type Run struct {
	// Execution is the run as last answered, without events and traceback. Its code preview
	// is that of the executor.
	contract.Execution
	Runtime    string    // the name of the pairing
	InstanceID string    // of the VM
	Recorded   time.Time // when it was submitted, by this laptop's clock
	// Internal marks a run of the relay's own code, such as a round of a chunked run. Its Code
	// is only the first line.
	Internal bool
	Name     string // of the code, such as its file's; may be empty
	Code     string
	CodeCut  bool // the code was too long for the history: Code is its beginning

	key string
}

// List returns all runs, newest first. It skips files that cannot be read, and logs the first.
func (s *Store) List() ([]Run, error) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the history: %w", err)
	}
	runs := []Run{}
	for _, e := range entries {
		key, ok := strings.CutSuffix(e.Name(), headSuffix)
		if !ok || !keyPattern().MatchString(key) {
			continue
		}
		run, err := summary(s.cfg.Dir, key)
		if err != nil {
			s.unreadable.do(func() {
				s.cfg.Log.Warn("a run of the history cannot be read; its files stay as they are", "file", e.Name(), "err", err)
			})
			continue
		}
		runs = append(runs, run)
	}
	sort.SliceStable(runs, func(i, j int) bool { return runs[i].Recorded.After(runs[j].Recorded) })
	return runs, nil
}

// Get returns the run with that execution id, or ErrNotFound. Of several, which only a false
// executor causes, it returns the newest.
func (s *Store) Get(id string) (Run, error) {
	runs, err := s.List()
	if err != nil {
		return Run{}, err
	}
	for _, run := range runs {
		if run.ExecutionID == id {
			return run, nil
		}
	}
	return Run{}, fmt.Errorf("%w: %.80q", ErrNotFound, id)
}

// Events returns the kept events of a run in order. A gap with a Cut stands for events that
// are missing from the history.
func (s *Store) Events(run Run) ([]contract.Event, error) {
	found, err := read(s.cfg.Dir, run.key)
	if err != nil {
		return nil, fmt.Errorf("read the run %q in the history: %w", run.ExecutionID, err)
	}
	return found.ordered(), nil
}

// Fetch returns a function that writes a payload of the run that was kept. It returns
// ErrNotFound for one that was not.
func (s *Store) Fetch(run Run) func(ctx context.Context, blob contract.Blob, w io.Writer) error {
	return func(_ context.Context, blob contract.Blob, w io.Writer) error {
		if !contract.SHA256Pattern().MatchString(blob.SHA256) {
			return ErrNotFound
		}
		content, err := bounded.ReadFile(blobPath(s.cfg.Dir, run.key, blob.SHA256), contract.MaxBlobPart)
		sum := sha256.Sum256(content)
		if err != nil || hex.EncodeToString(sum[:]) != blob.SHA256 { // a kill may have cut the file
			return ErrNotFound
		}
		_, err = w.Write(content)
		return err
	}
}

func blobPath(dir, key, sum string) string { return filepath.Join(dir, key+"."+sum+blobSuffix) }

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

// Complete fetches the events of a run that the history lacks and the VM still has, and the
// run's present state, and returns it. vm must report to this Store. It does not wait for a run
// that is still under way. The error is that of the VM: the history is readable after it too.
func (s *Store) Complete(ctx context.Context, vm client.ExecutionReader, run Run) (Run, error) {
	if err := s.Flush(ctx); err != nil {
		return run, err
	}
	found, err := read(s.cfg.Dir, run.key)
	if err != nil {
		return run, fmt.Errorf("read the run %q in the history: %w", run.ExecutionID, err)
	}
	for _, hole := range found.missing() {
		_, err = client.Follow(ctx, vm, contract.Execution{ExecutionID: run.ExecutionID}, client.FollowOptions{
			From: hole.Offset, Available: true, Instance: run.InstanceID, MaxBytes: contract.MaxReadBytes,
			Visit: func(e contract.Execution) bool { return e.NextOffset < hole.End() },
		})
		if err != nil {
			break
		}
	}
	if flushed := s.Flush(ctx); err == nil {
		err = flushed
	}
	if now, lost := summary(s.cfg.Dir, run.key); lost == nil {
		run = now
	}
	return run, err
}

// Lacks reports whether the VM may know more of a run than the history: the run had not ended,
// or events are missing.
func (s *Store) Lacks(run Run) bool {
	found, err := read(s.cfg.Dir, run.key)
	return err == nil && (!run.Status.Finished() || len(found.missing()) > 0)
}

// Filler returns a function that puts the history's events of a run in place of the gaps in
// what a VM answers: a VM whose disk was full, or which dropped old output, may have less than
// this computer was sent. A gap of which the history has nothing stays. The function reads the
// run once, at the first gap.
func (s *Store) Filler(executionID string) func(events []contract.Event) []contract.Event {
	var kept []contract.Event
	read := false
	return func(events []contract.Event) []contract.Event {
		filled := make([]contract.Event, 0, len(events))
		for _, ev := range events {
			gap, ok := rangeOf(&ev)
			if ev.Type != contract.EventGap || !ok {
				filled = append(filled, ev)
				continue
			}
			if !read {
				kept, read = s.keptEvents(executionID), true
			}
			filled = append(filled, pieces(kept, ev, gap.End())...)
		}
		return filled
	}
}

// keptEvents returns a run's events by offset, without gaps; none if the history can't be read.
func (s *Store) keptEvents(executionID string) []contract.Event {
	run, err := s.Get(executionID)
	if err != nil {
		return nil
	}
	events, err := s.Events(run)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(events, func(ev contract.Event) bool { return ev.Type == contract.EventGap })
}

// pieces returns the kept events in place of a gap, and gaps for those that are not kept.
func pieces(kept []contract.Event, gap contract.Event, end int64) []contract.Event {
	next := gap.Offset
	first, _ := slices.BinarySearchFunc(kept, next, func(ev contract.Event, offset int64) int { return cmp.Compare(ev.Offset, offset) })
	var found []contract.Event
	hole := func(to int64) {
		if to > next {
			found = append(found, contract.Event{Offset: next, Time: gap.Time, Type: contract.EventGap, Events: to - next})
		}
	}
	for _, ev := range kept[first:] {
		if ev.Offset >= end {
			break
		}
		hole(ev.Offset)
		found = append(found, ev)
		next = ev.Offset + 1
	}
	if len(found) == 0 {
		return []contract.Event{gap}
	}
	hole(end)
	return found
}
