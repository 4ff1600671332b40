package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Result is what a run of a cell produced.
type Result struct {
	Started time.Time
	Outputs json.RawMessage // a list of nbformat outputs, like those of a Cell; nil if the page answered without any
}

// maxLooks bounds the looks at the outputs of a cell that has ended.
const maxLooks = 5

// errCellGone says that a cell that ran is not in the notebook any more.
var errCellGone = errors.New("the cell is not in the notebook any more")

// Run runs a cell and waits for its end. When ctx ends first it returns ErrRunning, and the
// next Run of this cell waits on: it does not start the cell again, even if the cell has
// ended by then.
func (t *Tab) Run(ctx context.Context, id string) (Result, error) {
	r, err := t.runs.join(id, t.timing.unread, func(r *run) { r.end(t.execute(id)) })
	if err != nil {
		return Result{}, err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if t.runs.leave(r) {
			return Result{Started: r.started}, ErrRunning
		}
	}
	result, err, dropped := t.runs.take(r)
	if dropped && err == nil {
		var cell Cell
		cell, _, err = t.cell(ctx, id, -1)
		result.Outputs = cell.Outputs
	}
	result.Started = r.started
	return result, err
}

// Running reports whether a run of a cell, which this program began, is in progress.
func (t *Tab) Running(id string) bool { return t.runs.running(id) }

// execute runs a cell to its end. The call belongs to the tab, not to a caller, because the
// page may interrupt a cell whose call is cancelled.
func (t *Tab) execute(id string) (Result, error) {
	var answer struct {
		Outputs *outputList `json:"outputs"`
	}
	err := t.call(context.Background(), toolRun, map[string]any{"cellId": id}, &answer)
	var refused *ToolError
	switch {
	case errors.As(err, &refused) && refused.timedOut():
		return t.follow(id)
	case err != nil:
		return Result{}, err
	case answer.Outputs == nil:
		return Result{}, nil
	}
	return Result{Outputs: json.RawMessage(*answer.Outputs)}, nil
}

// timedOut reports whether the page gave up waiting for a cell, which runs on. Its error has
// no code of its own, so the text decides.
func (e *ToolError) timedOut() bool {
	const requestTimeout = -32001 // of MCP's TypeScript SDK
	text := strings.ToLower(e.Text)
	return e.Code == requestTimeout || strings.Contains(text, "timed out") || strings.Contains(text, "timeout")
}

// follow looks at a cell until it has ended. A look that fails is repeated.
func (t *Tab) follow(id string) (Result, error) {
	deadline := time.Now().Add(t.timing.follow)
	place := -1
	for pause := t.timing.poll; time.Now().Before(deadline); pause = min(pause*3/2, t.timing.maxPoll) {
		if err := t.pause(pause); err != nil {
			return Result{}, err
		}
		cell, at, err := t.look(id, place)
		switch {
		case errors.Is(err, ErrTabLost), errors.Is(err, errCellGone):
			return Result{}, err
		case err != nil:
		case ended(&cell):
			return t.settle(id, at, cell.Outputs)
		default:
			place = at
		}
	}
	return Result{}, fmt.Errorf("the cell has not ended in %s: look at it in Colab", t.timing.follow)
}

// settle returns the outputs of a cell that has ended. The page shows them a little later
// than the end.
func (t *Tab) settle(id string, place int, outputs json.RawMessage) (Result, error) {
	for range maxLooks {
		if err := t.pause(t.timing.poll); err != nil {
			return Result{}, err
		}
		cell, _, err := t.look(id, place)
		if err != nil || bytes.Equal(cell.Outputs, outputs) {
			break
		}
		outputs = cell.Outputs
	}
	return Result{Outputs: outputs}, nil
}

// ended reports whether a cell that was started has ended: it has a number again, or shows an
// error.
func ended(c *Cell) bool {
	var outputs []struct {
		Type string `json:"output_type"`
	}
	if c.ExecutionCount == nil && json.Unmarshal(c.Outputs, &outputs) == nil {
		return len(outputs) > 0 && outputs[len(outputs)-1].Type == "error"
	}
	return c.ExecutionCount != nil
}

func (t *Tab) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.Done():
		return ErrTabLost
	}
}

func (t *Tab) look(id string, place int) (Cell, int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), t.timing.call)
	defer cancel()
	return t.cell(ctx, id, place)
}

// cell returns a cell with its outputs, and its index. place is where it was last, or -1.
func (t *Tab) cell(ctx context.Context, id string, place int) (Cell, int, error) {
	if place >= 0 {
		if cell, ok := t.cellAt(ctx, id, place); ok {
			return cell, place, nil
		}
	}
	cells, err := t.Cells(ctx, 0, -1, false)
	if err != nil {
		return Cell{}, 0, err
	}
	place = indexOf(cells, id)
	if place < 0 {
		return Cell{}, 0, errCellGone
	}
	if cell, ok := t.cellAt(ctx, id, place); ok {
		return cell, place, nil
	}
	// Cells moved meanwhile, or the page counts the end of a range in another way.
	if cells, err = t.Cells(ctx, 0, -1, true); err != nil {
		return Cell{}, 0, err
	}
	if place = indexOf(cells, id); place < 0 {
		return Cell{}, 0, errCellGone
	}
	return cells[place], place, nil
}

// cellAt returns the cell at an index with its outputs, if it is the one with this id.
func (t *Tab) cellAt(ctx context.Context, id string, place int) (Cell, bool) {
	cells, err := t.Cells(ctx, place, place, true)
	if err != nil {
		return Cell{}, false
	}
	if i := indexOf(cells, id); i >= 0 {
		return cells[i], true
	}
	return Cell{}, false
}

func indexOf(cells []Cell, id string) int {
	for i := range cells {
		if cells[i].ID == id {
			return i
		}
	}
	return -1
}

// maxRuns bounds the runs that a tab remembers: those in progress, and those whose end no
// caller has seen. Beyond it no run starts.
const maxRuns = 500

// runs are the runs of a tab's cells, by the cell's id.
type runs struct {
	mu         sync.Mutex
	known      map[string]*run
	lost       bool
	goroutines sync.WaitGroup
}

// run is one run of a cell.
type run struct {
	id      string
	started time.Time
	done    chan struct{} // closed when the run has ended
	of      *runs
	waiting int // callers that wait
	left    int // callers that were told that the cell runs, and have not come back
	result  Result
	err     error
	ended   time.Time
	dropped bool // no caller waited for the result: it must be read from the cell
}

// join returns the run of a cell that is in progress, or has ended without a caller that saw
// it within the time of unread. Otherwise it begins one with start, in a goroutine.
func (s *runs) join(id string, unread time.Duration, start func(*run)) (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, r := range s.known {
		if !r.ended.IsZero() && r.waiting == 0 && time.Since(r.ended) > unread {
			delete(s.known, key)
		}
	}
	r := s.known[id]
	switch {
	case r != nil:
		r.left = max(r.left-1, 0)
	case s.lost:
		return nil, ErrTabLost
	case len(s.known) >= maxRuns:
		return nil, fmt.Errorf("%d cells run in Colab, or have ended without a call that waited for them: wait for those first", maxRuns)
	default:
		r = &run{id: id, started: time.Now(), done: make(chan struct{}), of: s}
		if s.known == nil {
			s.known = map[string]*run{}
		}
		s.known[id] = r
		s.goroutines.Go(func() { start(r) })
	}
	r.waiting++
	return r, nil
}

// end records how a run ended.
func (r *run) end(result Result, err error) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.result, r.err, r.ended = result, err, time.Now()
	r.drop()
	close(r.done)
}

// drop frees a result that nobody waits for.
func (r *run) drop() {
	if r.waiting == 0 {
		r.result, r.dropped = Result{}, true
	}
}

// leave says that a caller no longer waits. It returns false if the run has ended: the caller
// must take its result.
func (s *runs) leave(r *run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.ended.IsZero() {
		return false
	}
	r.waiting--
	r.left++
	return true
}

// take returns how a run ended, to a caller that waited. dropped says that its result must be
// read from the cell.
func (s *runs) take(r *run) (result Result, err error, dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	result, err, dropped = r.result, r.err, r.dropped
	r.waiting--
	r.drop()
	if r.waiting == 0 && r.left == 0 && s.known[r.id] == r {
		delete(s.known, r.id)
	}
	return result, err, dropped
}

// running reports whether a run of a cell is in progress.
func (s *runs) running(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.known[id]
	return r != nil && r.ended.IsZero()
}

// forget lets the next call start the cell anew.
func (s *runs) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, id)
}

// wait returns when no run is in progress. No other one begins.
func (s *runs) wait() {
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	s.goroutines.Wait()
}
