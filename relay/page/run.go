package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/shared/keep"
)

// Result is what a run of a cell produced.
type Result struct {
	Started time.Time
	Outputs json.RawMessage // a list of nbformat outputs, like those of a Cell; nil if the page answered without any

	dropped bool // Outputs must be read from the cell
}

// maxLooks bounds the looks at the outputs of a cell that has ended.
const maxLooks = 5

// errCellGone says that a cell that ran is not in the notebook any more.
var errCellGone = errors.New("the cell is not in the notebook any more")

// Run runs a cell and waits for its end. When ctx ends first it returns ErrRunning, and the
// next Run of this cell waits on: it does not start the cell again, even if the cell has
// ended by then.
func (t *Tab) Run(ctx context.Context, id string) (Result, error) {
	run, err := t.runs.Join(id, nil, func(context.Context, func(string)) (Result, error) { return t.execute(id) })
	switch {
	case errors.Is(err, keep.ErrFull):
		return Result{}, fmt.Errorf("%d cells run in Colab, or have ended without a call that waited for them: wait for those first", maxRuns)
	case err != nil:
		return Result{}, err
	}
	result, err := run.Wait(ctx, func(string) {})
	switch {
	case errors.Is(err, keep.ErrUnderWay):
		err = ErrRunning
	case err == nil && result.dropped:
		var cell Cell
		cell, err = t.cell(ctx, id)
		result.Outputs = cell.Outputs
	}
	result.Started = run.Began
	return result, err
}

// Running reports whether a run of a cell, which this program began, is in progress.
func (t *Tab) Running(id string) bool {
	_, inProgress := t.runs.Find(id)
	return inProgress
}

// maxRuns bounds the runs that a tab remembers: those in progress, and those whose end no
// caller has seen. Beyond it no run starts.
const maxRuns = 500

// newRuns returns the runs of a tab's cells, by the cell's id. A result that nobody waits for is
// not kept, because it may be large: it is read from the cell.
func newRuns(unread time.Duration) *keep.Flights[Result] {
	runs := keep.NewFlights[Result](unread)
	runs.Most, runs.Drop = maxRuns, func(r *Result) { *r = Result{dropped: true} }
	return runs
}

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
	for pause := t.timing.poll; time.Now().Before(deadline); pause = min(pause*3/2, t.timing.maxPoll) {
		cell, err := t.lookAfter(pause, id)
		switch {
		case errors.Is(err, ErrTabLost), errors.Is(err, errCellGone):
			return Result{}, err
		case err == nil && ended(&cell):
			return t.settle(id, cell.Outputs), nil
		}
	}
	return Result{}, fmt.Errorf("the cell has not ended in %s: look at it in Colab", t.timing.follow)
}

// settle returns the outputs of a cell that has ended. The page shows them a little later
// than the end.
func (t *Tab) settle(id string, outputs json.RawMessage) Result {
	for range maxLooks {
		cell, err := t.lookAfter(t.timing.poll, id)
		if err != nil || bytes.Equal(cell.Outputs, outputs) {
			break
		}
		outputs = cell.Outputs
	}
	return Result{Outputs: outputs}
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

// lookAfter waits, and returns the cell with its outputs.
func (t *Tab) lookAfter(pause time.Duration, id string) (Cell, error) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Done():
		return Cell{}, ErrTabLost
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.timing.call)
	defer cancel()
	return t.cell(ctx, id)
}

// cell returns a cell with its outputs. Those of the other cells may be large, so that they are
// read only if the cell moves meanwhile, or the page counts the end of a range in another way.
func (t *Tab) cell(ctx context.Context, id string) (Cell, error) {
	_, place, err := t.find(ctx, id, 0, -1, false)
	if err != nil {
		return Cell{}, err
	}
	cell, _, err := t.find(ctx, id, place, place, true)
	if err != nil {
		cell, _, err = t.find(ctx, id, 0, -1, true)
	}
	return cell, err
}

// find returns a cell and its place among those that Cells returns.
func (t *Tab) find(ctx context.Context, id string, from, to int, outputs bool) (Cell, int, error) {
	cells, err := t.Cells(ctx, from, to, outputs)
	if err != nil {
		return Cell{}, 0, err
	}
	place := slices.IndexFunc(cells, func(c Cell) bool { return c.ID == id })
	if place < 0 {
		return Cell{}, 0, errCellGone
	}
	return cells[place], place, nil
}
