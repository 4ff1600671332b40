package nbrun

import "time"

// outcome describes the run at the end of the call.
func (a *advance) outcome() Outcome {
	run := a.run()
	a.out.Status, a.out.Notes, a.out.ReportPath, a.out.RetryAt = run.Status, a.notes, a.reports, run.RetryAt
	a.out.SavedFiles = a.outputs.saved
	a.out.CanContinue = !run.Status.Finished()
	a.out.Counts = map[CellStatus]int{}
	for _, c := range run.Plan {
		a.out.Counts[c.Status]++
		if c.Status.failed() && len(a.out.Failed) < maxFailed {
			a.out.Failed = append(a.out.Failed, c)
		}
	}
	a.out.Current = a.current()
	return a.out
}

// maxFailed bounds Outcome.Failed.
const maxFailed = 20

// failed reports whether a cell ended, and not as the notebook wants.
func (s CellStatus) failed() bool {
	switch s {
	case CellFailed, CellTimedOut, CellInterrupted, CellKernelDied, CellLost:
		return true
	}
	return false
}

// current describes the cell that runs, is retried or waits.
func (a *advance) current() *Current {
	if f := a.head(); f != nil {
		return a.record.currentOf(f)
	}
	if a.run().RetryAt == nil {
		return nil
	}
	for i := range a.run().Plan {
		if c := &a.run().Plan[i]; c.pending() {
			return &Current{CellID: c.Handle, Index: c.Index, Attempt: len(c.Attempts) + 1}
		}
	}
	return nil
}

func (r *Record) currentOf(f *Flight) *Current {
	c := r.Run.cell(f.Handle)
	got := &Current{CellID: f.Handle, Index: c.Index, Attempt: len(c.Attempts), ExecutionID: f.ExecutionID}
	if last := c.last(); last != nil && last.Started != nil {
		got.Seconds = max(0, time.Since(*last.Started).Seconds())
	}
	return got
}
