package nbrun

import (
	"context"

	"colabrelay/relay/dataflow"
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
		c.SkippedBecause = append(c.SkippedBecause, Because{b.Cell, b.Names[:min(len(b.Names), maxLacking)]})
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
