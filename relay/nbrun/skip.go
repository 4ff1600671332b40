package nbrun

import (
	"context"
	"errors"
	"slices"

	"colabrelay/relay/client"
	"colabrelay/relay/dataflow"
	"colabrelay/relay/plain"
)

// skipDependents makes sure that the next cells are chosen by what they use.
func (a *advance) skipDependents(context.Context) error {
	a.run().Undecided = a.spec.OnError == SkipDependents
	return nil
}

// decide skips the cells that use what failed and skipped cells should have made.
func (a *advance) decide(ctx context.Context) error {
	facts, err := a.facts(ctx, a.view.cells)
	if err != nil {
		return err
	}
	var poison dataflow.Poison
	for i, now := range a.view.cells {
		c := a.run().cell(now.handle)
		if c != nil && (c.pending() || c.Status == CellSkipped) {
			a.decideOne(c, poison.Skips(facts[i]), a.isForced(now))
		}
		if outcome, ran := a.outcomeOf(now, c); ran {
			poison.Add(now.handle, facts[i], outcome)
		}
	}
	a.run().Undecided = false
	return nil
}

func (a *advance) decideOne(c *CellRecord, because []dataflow.Because, forced bool) {
	c.Status, c.SkippedBecause = CellNotRun, nil
	if len(because) == 0 || forced {
		return
	}
	c.Status = CellSkipped
	for _, b := range because[:min(len(because), maxBecause)] {
		c.SkippedBecause = append(c.SkippedBecause, Because{b.Cell, b.Names})
	}
}

// outcomeOf returns how a cell ended, for what depends on it. A cell that is to be run is taken
// to succeed; one that is neither selected nor ran in this kernel has no outcome.
func (a *advance) outcomeOf(now *cell, c *CellRecord) (outcome dataflow.Outcome, ran bool) {
	if c == nil || c.Status == CellNotRun && c.Why != "" {
		last := a.record.Life.last(now.handle)
		return outcomes[last], last != ""
	}
	if c.pending() {
		return dataflow.Succeeded, true
	}
	return outcomes[c.Status], true
}

// outcomes are the statuses that are no success.
var outcomes = map[CellStatus]dataflow.Outcome{
	CellExpectedFailure: dataflow.Tolerated, CellFailed: dataflow.Failed, CellTimedOut: dataflow.Failed,
	CellInterrupted: dataflow.Failed, CellKernelDied: dataflow.Failed, CellLost: dataflow.Failed, CellSkipped: dataflow.Failed,
}

// last returns how a cell ended the last time it ran in this kernel; empty if it has not.
func (l *Life) last(handle string) CellStatus {
	for i := len(l.Runs) - 1; i >= 0; i-- {
		if l.Runs[i].Handle == handle {
			return l.Runs[i].Status
		}
	}
	return ""
}

// facts returns what is known of each cell's names; nil where nothing is. The kernel analyses
// the sources that the record does not have.
func (a *advance) facts(ctx context.Context, cells []*cell) ([]*dataflow.Facts, error) {
	var missing []*cell
	var sources []string
	for _, c := range cells {
		if _, known := a.record.Facts[c.sent]; !known && !slices.ContainsFunc(missing, func(m *cell) bool { return m.sent == c.sent }) {
			missing, sources = append(missing, c), append(sources, c.code)
		}
	}
	if len(missing) > 0 {
		if err := a.analyse(ctx, missing, sources); err != nil {
			return nil, err
		}
	}
	all := make([]*dataflow.Facts, len(cells))
	for i, c := range cells {
		if f, known := a.record.Facts[c.sent]; known {
			all[i] = &f
		}
	}
	return all, nil
}

// analyse asks the kernel for the facts of cells. Without an answer, nothing is known of them. An
// error means that the VM can't be reached, or that the call's time is over.
func (a *advance) analyse(ctx context.Context, missing []*cell, sources []string) error {
	due, cancel := context.WithDeadline(ctx, a.opt.Until)
	defer cancel()
	found, err := dataflow.Analyse(due, a.vm, sources)
	var unreachable *client.Error
	switch {
	case due.Err() != nil && ctx.Err() == nil:
		return errEnough
	case errors.As(err, &unreachable) || ctx.Err() != nil:
		return err
	case err != nil:
		a.addNote("which cells depend on each other could not be determined: %s", plain.Line(err.Error()))
		return nil
	}
	for i, c := range missing[:min(len(missing), len(found))] {
		a.record.Facts[c.sent] = found[i]
	}
	return nil
}

// errEnough ends a call: there is more to do, and the next call does it.
var errEnough = errors.New("the call's time is over")
