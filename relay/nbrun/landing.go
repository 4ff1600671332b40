package nbrun

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/jobs"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// ended says what becomes of a cell by the final status of its execution. There are no others.
var ended = map[contract.Status]CellStatus{
	contract.StatusSucceeded:       CellSucceeded,
	contract.StatusFailed:          CellFailed,
	contract.StatusTimedOut:        CellTimedOut,
	contract.StatusInterrupted:     CellInterrupted,
	contract.StatusKernelDied:      CellKernelDied,
	contract.StatusKernelRestarted: CellInterrupted,
	contract.StatusLost:            CellLost,
	contract.StatusCancelled:       CellNotRun,
}

// land records the end of an entry of the job.
func (a *advance) land(e jobs.Entry, x contract.Execution) error {
	a.changed() // for what the cell is in the notebook now
	step, c := a.stepOf(e)
	switch {
	case c == nil, e.Status == contract.StepNotRun: // the job's end says why
		return nil
	case e.Status == contract.StepSkipped:
		c.Status = CellSkipped
		if a.needs == nil {
			a.needs = a.linkCells()
		}
		_, c.SkippedBecause = a.split(c, nil)
		return nil
	}
	a.outputs.end(x)
	if e.Forgotten {
		if !c.pending() { // an earlier call recorded it; only its outputs were missing
			return nil
		}
		x.Status, x.End = contract.Status(e.Status), true
		a.out.Execution = x
		a.addNote("the VM no longer has the outputs of cell %d (id %s), which had ended", c.Index, c.Handle)
	}
	at := c.attempt(x.ExecutionID)
	if at.Status != "" {
		return nil
	}
	at.end(x)
	if c.Attempts = len(e.Earlier) + 1; c.Attempts > 1 {
		a.addNote("cell %d (id %s) ran %d times, because it raised errors that usually pass by themselves; what the earlier attempts did was not undone", c.Index, c.Handle, c.Attempts)
	}
	now := a.view.byHandle[c.Handle]
	if now == nil || now.source != step.Source {
		a.addNote("cell %d (id %s) was edited while it ran: its outputs are not in the notebook, and it is dirty", c.Index, c.Handle)
	}
	if c.Status = cmp.Or(ended[x.Status], CellLost); c.Status == CellNotRun {
		return nil
	}
	if c.Status == CellFailed && now != nil && now.has(tagExpectFailure) {
		c.Status = CellExpectedFailure
	}
	a.record.ran(c, *step, c.Status)
	if c.Status == CellSucceeded && now != nil && now.has(tagSaveState) && a.savesStates() {
		a.run.Saving = c.Key
	}
	return nil
}

// begin records what is known of an attempt that runs.
func (at *Attempt) begin(x contract.Execution) {
	at.KernelID = x.KernelID
	if x.StartedAt != nil {
		started := x.StartedAt.UTC()
		at.Started, at.Seconds = &started, max(0, time.Since(started).Seconds())
	}
}

// end records how an attempt ended, as the VM says.
func (at *Attempt) end(x contract.Execution) {
	at.Status, at.KernelID = x.Status, x.KernelID
	if x.StartedAt != nil && x.FinishedAt != nil {
		at.Seconds = max(0, x.FinishedAt.Sub(*x.StartedAt).Seconds())
	}
	if x.Status == contract.StatusSucceeded {
		return
	}
	at.Error = &Failure{Reason: shorten(x.Reason, maxValue)}
	if x.Error != nil {
		at.Error.EName, at.Error.EValue = shorten(x.Error.EName, maxName), shorten(x.Error.EValue, maxValue)
	}
}

// shorten returns at most so many bytes of a text, as valid UTF-8, without the memory of the rest.
func shorten(text string, most int) string {
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), most)], ""))
}

// attempt returns the attempt of an execution: the last one, or a new one.
func (c *CellRecord) attempt(executionID string) *Attempt {
	if c.Last == nil || c.Last.ExecutionID != executionID || executionID == "" {
		c.Attempts, c.Last = c.Attempts+1, &Attempt{ExecutionID: executionID}
	}
	return c.Last
}

// endJob acts on the end of the job. All its entries are recorded.
func (a *advance) endJob(ctx context.Context, j contract.Job) error {
	if err := a.flush(ctx, true); err != nil {
		return err
	}
	run := a.run
	left := func(s Step) bool { c := run.keyed(s.Cell); return c != nil && c.pending() }
	if j.State == contract.JobFinished && slices.ContainsFunc(run.Job.Steps, left) {
		// Another program may have edited the job.
		if a.reruns++; j.Revision == run.Job.At || a.reruns > maxReruns {
			return fmt.Errorf("%w: it reports the job as finished, although some of its cells have not run", jobs.ErrAnswer)
		}
	}
	run.Job = nil
	switch j.State {
	case contract.JobFinished:
	case contract.JobCancelled:
		run.Stopping = StatusInterrupted
		a.addNote("the run was interrupted")
	case contract.JobKernelLost:
		if !slices.ContainsFunc(run.Plan, func(c CellRecord) bool { return c.Status == CellKernelDied }) {
			return a.meetKernel(ctx)
		}
		run.Stopping = StatusKernelDied
	default:
		if run.Stopping = StatusFailed; run.unsuccessful() == nil {
			a.addNote("the run ended on the VM: %s", plain.Quote(j.Reason))
		}
	}
	return a.save()
}
