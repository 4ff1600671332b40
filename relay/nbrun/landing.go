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
		_, lacking := a.split(c, nil)
		c.Why = lacking.why()
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
		at.Seconds = max(0, time.Since(*x.StartedAt).Seconds())
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

// endJob acts on the end of the job, and reports whether there is more to do. All its entries are
// recorded.
func (a *advance) endJob(ctx context.Context, j contract.Job) (more bool, err error) {
	if err := a.flush(ctx, true); err != nil {
		return false, err
	}
	run := a.run
	left := func(s Step) bool { c := run.keyed(s.Cell); return c != nil && c.pending() }
	if j.State == contract.JobFinished && slices.ContainsFunc(run.Job.Steps, left) {
		// Another program may have edited the job.
		if a.reruns++; j.Revision == run.Job.At || a.reruns > maxReruns {
			return false, fmt.Errorf("%w: it reports the job as finished, although some of its cells have not run", jobs.ErrAnswer)
		}
	}
	run.Job = nil
	switch j.State {
	case contract.JobFinished:
		return true, a.save()
	case contract.JobCancelled:
		a.addNote("the run was interrupted")
		return false, a.finish(ctx, StatusInterrupted)
	case contract.JobKernelLost:
		if !slices.ContainsFunc(run.Plan, func(c CellRecord) bool { return c.Status == CellKernelDied }) {
			return true, a.meetKernel(ctx)
		}
		return false, a.finish(ctx, StatusKernelDied)
	}
	if run.unsuccessful() == nil {
		a.addNote("the run ended on the VM: %s", plain.Quote(j.Reason))
	}
	return false, a.finish(ctx, StatusFailed)
}

// maxReruns is how often one call starts the run again: in a new kernel, or because another program
// edited its job.
const maxReruns = 1

// enter makes a kernel the run's: the next cells run there.
func (a *advance) enter(kernelID string) { a.run.KernelID, a.record.KernelID = kernelID, kernelID }

// meetKernel acts on the end of the job's kernel, executor or VM: nothing of the job goes on, whatever
// a new one calls its kernel.
func (a *advance) meetKernel(ctx context.Context) error {
	k, err := a.currentKernel(ctx)
	if err != nil {
		return err
	}
	return a.newKernel(ctx, k.KernelID)
}

// newKernel acts on a kernel that has none of the run's variables.
func (a *advance) newKernel(ctx context.Context, kernelID string) error {
	if err := a.flush(ctx, true); err != nil {
		return err
	}
	run := a.run
	left := run.Job
	sent := left != nil && left.MayRun
	begun := sent || slices.ContainsFunc(run.Plan, func(c CellRecord) bool { return c.Last != nil })
	if sent {
		a.addNote("the VM was replaced before the end of the run was read: cells that are called lost may have run there")
	} else {
		left = nil
	}
	a.abandonCells(left)
	run.Status, run.Job, run.Saving, a.now = StatusRunning, nil, 0, reading{}
	a.enter(kernelID)
	switch {
	case run.Saved != nil && a.savesStates():
		run.Restoring = true
		a.addNote("the kernel is new: the state saved after the cell with id %s is restored, and the run continues after it", run.handle(run.Saved.Cell))
	case !begun:
	case a.spec.OnNewKernel == StopOnNewKernel:
		run.Status, run.Job = StatusNewKernel, left // whose VM may answer again
		a.addNote("the kernel is new, without the variables of the cells that ran: the run stopped")
		return a.save()
	default:
		a.addNote("the kernel is new, without the variables of the cells that ran: the run starts again at its first cell, and cells that had run run again")
		run.resetAfter(0)
	}
	// More than maxReruns end the call. The plan is already that of the newest kernel.
	if a.reruns++; a.reruns <= maxReruns {
		return a.save()
	}
	a.addNote("the kernel was replaced again during this call")
	return errEnough
}

// abandonCells gives up the cell that ran in a kernel that has ended, and with the VM's own end all
// that it was sent in a job: any of them may have run.
func (a *advance) abandonCells(sent *JobRecord) {
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		at := c.Last
		switch running := c.Status == CellRunning && at != nil && at.Status == ""; {
		case !running && (!c.pending() || !sent.hasUnread(c.Key)):
			continue
		case !running:
			at = c.attempt("") // which execution it was is not known
		}
		at.Status, at.Error = contract.StatusLost, &Failure{Reason: "the kernel or the VM was replaced before its end was read"}
		c.Status = CellLost
	}
}

// comeBack goes on with the job of a VM that seemed to be replaced, if that VM answers again. It
// reports whether there is such a job.
func (a *advance) comeBack(kernelID string) bool {
	run := a.run
	if run.Job == nil || run.Job.InstanceID != a.vm.InstanceID() {
		return false
	}
	for i := range run.Plan {
		c := &run.Plan[i]
		switch at := c.Last; {
		case c.Status != CellLost || !run.Job.hasUnread(c.Key):
		case at.ExecutionID == "":
			c.Status, c.Attempts, c.Last = CellNotRun, 0, nil
		default:
			c.Status, at.Status, at.Error = CellRunning, "", nil
		}
	}
	run.Status = StatusRunning
	a.enter(kernelID)
	a.addNote("the VM that had the run answers again")
	return true
}

// hasUnread reports whether the job has a step of the cell with that key whose end was not read.
func (j *JobRecord) hasUnread(key int) bool {
	return j != nil && slices.ContainsFunc(j.Steps[min(j.Entry, len(j.Steps)):], func(s Step) bool { return s.Cell == key })
}

// resetAfter makes the cells after the one with a key run again; without that cell, all of them.
func (r *RunRecord) resetAfter(key int) {
	from := 1 + slices.IndexFunc(r.Plan, func(c CellRecord) bool { return c.Key == key })
	for i := from; i < len(r.Plan); i++ {
		c := &r.Plan[i]
		c.Status, c.Why, c.Attempts = CellNotRun, "", 0
	}
}
