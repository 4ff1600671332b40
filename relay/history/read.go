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
	"strings"
	"time"

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
	// Internal marks a run of the relay's own code, such as a batch of a chunked run. Its Code
	// is only the first line.
	Internal bool
	Name     string // of the code, such as its file's; may be empty
	Code     string
	CodeCut  bool // the code was too long for the history: Code is its beginning

	key string
}

// List returns all runs, newest first. It skips files that cannot be read.
func (s *Store) List() ([]Run, error) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the history: %w", err)
	}
	runs := []Run{}
	for _, e := range entries {
		key, ok := strings.CutSuffix(e.Name(), headSuffix)
		if !ok || !keyPattern.MatchString(key) || !e.Type().IsRegular() {
			continue
		}
		if run, err := summary(s.cfg.Dir, key); err == nil {
			runs = append(runs, run)
		}
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return b.Recorded.Compare(a.Recorded) })
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
		if !contract.SHA256Pattern.MatchString(blob.SHA256) {
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
	if c.head.Version != version {
		return nil, fmt.Errorf("the file %q is not one of this release", key+headSuffix)
	}
	return c, nil
}

func (c *contents) readFile(path, suffix string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReaderSize(io.LimitReader(f, 2*maxRunBytes), 64<<10)
	for {
		text, err := nextLine(lines)
		c.sizes[suffix] += int64(len(text))
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

// nextLine returns the next line, or nothing in place of one over maxLine.
func nextLine(r *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(text)+len(part) <= maxLine {
			text = append(text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
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
		c.state = *l.State
		if c.state.End {
			c.total = max(c.total, c.state.NextOffset)
		}
	case l.Event != nil:
		if at, ok := rangeOf(l.Event); ok {
			c.have = extend(c.have, at)
			c.events = append(c.events, *l.Event)
		}
	}
}

// notKept is the Cut of a gap that stands for events missing from the history.
const notKept = "this laptop's history does not have this output"

// ordered returns the events by offset, each once, with gaps for those that are missing.
func (c *contents) ordered() []contract.Event {
	slices.SortStableFunc(c.events, func(a, b contract.Event) int {
		if a.Offset == b.Offset {
			return boolOrder(a.Type == contract.EventGap) - boolOrder(b.Type == contract.EventGap)
		}
		return int(max(-1, min(1, a.Offset-b.Offset)))
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

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
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
