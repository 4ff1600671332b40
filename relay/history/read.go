package history

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"colabrelay/relay/client"
	"colabrelay/relay/output"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// ErrNotFound: the history has no such run, or no longer.
var ErrNotFound = errors.New("no such run in the history")

// Run is one run in the history. Every text in it comes from an executor or from the run's
// code: plain cleans it for a terminal.
type Run struct {
	Head
	contract.Execution        // as last answered, without traceback; List leaves out Events
	Code               string // of List, the Preview
}

func newRun(h Head, state contract.Execution) Run {
	state.ExecutionID, state.RequestID, state.CodePreview = h.ID, h.Request, h.Preview
	state.Status = cmp.Or(state.Status, contract.StatusQueued) // a program was killed before it wrote more
	return Run{h, state, h.Preview}
}

func (r *Run) key() string { return keyOf(r.InstanceID, r.ExecutionID) }

// List returns all runs, newest first.
func (s *Store) List() ([]Run, error) {
	if s == nil {
		return nil, nil
	}
	runs, err := readIndex(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list the history: %w", err)
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return b.Recorded.Compare(a.Recorded) })
	return runs, nil
}

// readIndex returns all runs, in the order in which they were submitted.
func readIndex(dir string) (runs []Run, err error) {
	f, err := bounded.Open(filepath.Join(dir, indexName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at := map[[2]string]int{}
	err = eachLine(f, maxIndexLine, func(l line) {
		if l.Head == nil || l.State == nil {
			return
		}
		id := [2]string{l.Head.InstanceID, l.Head.ID}
		i, known := at[id]
		if !known {
			at[id] = len(runs)
			runs = append(runs, newRun(*l.Head, *l.State))
			return
		}
		if next, ok := follows(runs[i].Execution, *l.State); ok {
			runs[i] = newRun(runs[i].Head, next)
		}
	})
	return runs, err
}

// eachLine calls use with each line that is complete.
func eachLine(r io.Reader, most int, use func(line)) error {
	lines := bufio.NewReaderSize(r, edgeBytes)
	for {
		text, _, err := bounded.ReadLine(lines, most)
		if l, ok := decode(text); ok {
			use(l)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Get returns the run with that execution id, or ErrNotFound. Of several, which only a false
// executor causes, it returns the newest.
func (s *Store) Get(id string) (Run, error) {
	runs, err := s.List()
	if err != nil {
		return Run{}, err
	}
	at := slices.IndexFunc(runs, func(r Run) bool { return r.ExecutionID == id })
	if at < 0 {
		return Run{}, fmt.Errorf("%w: %.80q", ErrNotFound, id)
	}
	return runs[at], nil
}

// Whole is a run with its code and the events that are kept, in order.
type Whole struct {
	Run
	Fetch output.Fetch // writes a payload that is kept, or returns ErrNotFound
	// Complete: it has ended, and nothing of its output is missing, payloads included.
	Complete bool
	missing  ranges.Set // of the events, those that the VM may have and for which there is room
}

// Read returns a run with all that is kept of it. A gap with a Cut stands for events that are
// missing from the history.
func (s *Store) Read(run Run) (Whole, error) {
	all, err := s.read(run)
	if err != nil {
		return Whole{Run: run}, fmt.Errorf("read the run %q in the history: %w", run.ExecutionID, err)
	}
	w := Whole{Run: run, Fetch: s.fetch(run)}
	if next, newer := follows(all.mark.State, run.Execution); newer { // the file's state has longer texts
		all.mark.State = next
	}
	w.Run = newRun(run.Head, all.mark.State)
	w.Code = cmp.Or(all.code, w.Code)
	have, end := all.have(), int64(maxOffset)
	known := have.End()
	if ended(w.Execution) {
		end, known = w.NextOffset, max(known, w.NextOffset)
	}
	w.Events = inOrder(all.events, all.gaps, 0, known)
	missing := have.Missing(contract.Range{Length: end})
	w.Complete = ended(w.Execution) && len(missing) == 0 && len(all.gaps) == 0 && s.hasPayloads(w)
	if !all.mark.Full {
		w.missing = missing
	}
	return w, nil
}

// contents is what a run's file has.
type contents struct {
	head   Head
	code   string
	mark   mark             // the last one
	events []contract.Event // by offset
	gaps   []contract.Event // of the VM, by offset
}

func (s *Store) read(run Run) (contents, error) {
	f, err := bounded.Open(runPath(s.dir, run.key()))
	if errors.Is(err, fs.ErrNotExist) { // the rest was pruned
		return contents{}, nil
	}
	if err != nil {
		return contents{}, err
	}
	defer f.Close()
	return readAll(f)
}

// readAll reads a run's file. Its size is bounded by what a writer appends.
func readAll(r io.Reader) (c contents, err error) {
	err = eachLine(io.LimitReader(r, 2*maxRunBytes), maxLine, func(l line) {
		switch {
		case l.Head != nil && c.head.ID == "":
			c.head = *l.Head
		case l.Code != nil && c.code == "":
			c.code = *l.Code
		case l.Mark != nil:
			c.mark = *l.Mark
		case l.Event != nil:
			if _, ok := rangeOf(l.Event); !ok {
				break
			}
			if l.Event.Type == contract.EventGap {
				c.gaps = append(c.gaps, *l.Event)
			} else {
				c.events = append(c.events, *l.Event)
			}
		}
	})
	byOffset := func(a, b contract.Event) int { return cmp.Compare(a.Offset, b.Offset) }
	slices.SortStableFunc(c.events, byOffset)
	slices.SortStableFunc(c.gaps, byOffset)
	return c, err
}

// have returns the offsets of the events and gaps.
func (c *contents) have() (have ranges.Set) {
	for _, all := range [][]contract.Event{c.events, c.gaps} {
		for i := range all {
			at, _ := rangeOf(&all[i])
			have = have.Add(at)
		}
	}
	return have
}

// notKept is the gap that stands for events missing from the history.
var notKept = contract.Event{Offset: -1, Type: contract.EventGap, Cut: "this laptop's history does not have this output"}

// inOrder returns the events with offsets from from up to to, each once. What is missing between
// them has the gap that stands for it, or notKept.
func inOrder(events, gaps []contract.Event, from, to int64) (all []contract.Event) {
	next := from
	gap := func(end int64, ev contract.Event) {
		if end <= next {
			return
		}
		if ev.Offset != next || ev.Events != end-next {
			ev.Offset, ev.Events, ev.Bytes = next, end-next, 0
		}
		all, next = append(all, ev), end
	}
	until := func(end int64) {
		for ; len(gaps) > 0 && gaps[0].Offset < end; gaps = gaps[1:] {
			at, _ := rangeOf(&gaps[0])
			gap(at.Offset, notKept)
			gap(min(end, at.End()), gaps[0])
			if at.End() > end {
				return
			}
		}
		gap(end, notKept)
	}
	for _, ev := range events {
		if ev.Offset >= next {
			until(ev.Offset)
			all, next = append(all, ev), ev.Offset+1
		}
	}
	until(to)
	return all
}

// hasPayloads reports whether all payloads that a run's events name are kept.
func (s *Store) hasPayloads(w Whole) bool {
	for _, ev := range w.Events {
		for _, raw := range ev.Data {
			blob, named := output.BlobOf(raw)
			if !named {
				continue
			}
			if !contract.SHA256Pattern().MatchString(blob.SHA256) {
				return false
			}
			info, err := os.Lstat(blobPath(s.dir, w.key(), blob.SHA256))
			if err != nil || info.Size() != blob.Bytes {
				return false
			}
		}
	}
	return true
}

func (s *Store) fetch(run Run) output.Fetch {
	return func(_ context.Context, blob contract.Blob, w io.Writer) error {
		if !contract.SHA256Pattern().MatchString(blob.SHA256) {
			return ErrNotFound
		}
		content, err := bounded.ReadFile(blobPath(s.dir, run.key(), blob.SHA256), contract.MaxBlobPart)
		sum := sha256.Sum256(content)
		if err != nil || hex.EncodeToString(sum[:]) != blob.SHA256 { // a kill may have cut the file
			return ErrNotFound
		}
		_, err = w.Write(content)
		return err
	}
}

// Lacks reports whether the VM may know more of a run that the history takes: the run had not
// ended, or events are missing.
func (w *Whole) Lacks() bool { return len(w.missing) > 0 || !w.Status.Finished() }

// Complete fetches the events of a run that the history lacks and the VM still has, and the
// run's present state, and returns it. vm must report to this Store. It does not wait for a run
// that is still under way. The error is that of the VM: the history is readable after it too.
func (s *Store) Complete(ctx context.Context, vm client.ExecutionReader, w Whole) (Whole, error) {
	err := s.Flush(ctx)
	holes := w.missing
	if len(holes) == 0 { // only the state is asked for
		holes = ranges.Set{{Offset: w.NextOffset}}
	}
	for _, hole := range holes {
		if err != nil {
			break
		}
		_, err = client.Follow(ctx, vm, contract.Execution{ExecutionID: w.ExecutionID}, client.FollowOptions{
			From: hole.Offset, Available: true, Instance: w.InstanceID, MaxBytes: contract.MaxReadBytes,
			Visit: func(e contract.Execution) bool { return e.NextOffset < hole.End() },
		})
	}
	err = cmp.Or(err, s.Flush(ctx))
	now, lost := s.Read(w.Run)
	if lost != nil {
		return w, cmp.Or(err, lost)
	}
	return now, err
}

// Filler returns a function that puts the history's events of a run in place of the gaps in
// what a VM answers: a VM whose disk was full, or which dropped old output, may have less than
// this computer was sent. A gap of which the history has nothing stays. The function reads the
// run once, at the first gap.
func (s *Store) Filler(executionID string) func(events []contract.Event) []contract.Event {
	var kept contents
	read := false
	return func(events []contract.Event) []contract.Event {
		filled := make([]contract.Event, 0, len(events))
		for _, ev := range events {
			at, ok := rangeOf(&ev)
			if s == nil || ev.Type != contract.EventGap || !ok {
				filled = append(filled, ev)
				continue
			}
			if !read {
				read = true
				if run, err := s.Get(executionID); err == nil {
					kept, _ = s.read(run) // what cannot be read is not kept
				}
			}
			within := func(offset int64) int {
				i, _ := slices.BinarySearchFunc(kept.events, offset, func(ev contract.Event, to int64) int { return cmp.Compare(ev.Offset, to) })
				return i
			}
			filled = append(filled, inOrder(kept.events[within(at.Offset):within(at.End())], []contract.Event{ev}, at.Offset, at.End())...)
		}
		return filled
	}
}
