package nbrun

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"colabrelay/shared/contract"
)

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
	sent := run.Job != nil && run.Job.MayRun
	begun := sent || slices.ContainsFunc(run.Plan, func(c CellRecord) bool { return c.Last != nil })
	if run.Left = nil; sent {
		a.addNote("the VM was replaced before the end of the run was read: cells that are called lost may have run there")
		run.Left = run.Job
	}
	a.abandonCells()
	run.Status, run.Job, run.Saving, a.now = StatusRunning, nil, 0, reading{}
	a.enter(kernelID)
	switch {
	case run.Saved != nil && a.savesStates():
		run.Restoring = true
		a.addNote("the kernel is new: the state saved after the cell with id %s is restored, and the run continues after it", run.handle(run.Saved.Cell))
	case !begun:
	case a.spec.OnNewKernel == StopOnNewKernel:
		run.Status = StatusNewKernel
		a.addNote("the kernel is new, without the variables of the cells that ran: the run stopped")
		return a.save()
	default:
		a.noteRerun()
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
// that it was sent: any of them may have run.
func (a *advance) abandonCells() {
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		at := c.Last
		switch running := c.Status == CellRunning && at != nil && at.Status == ""; {
		case !running && (!c.pending() || !a.run.Left.hasUnread(c.Key)):
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
	if run.Left == nil || run.Left.InstanceID != a.vm.InstanceID() {
		return false
	}
	for i := range run.Plan {
		c := &run.Plan[i]
		switch at := c.Last; {
		case c.Status != CellLost || !run.Left.hasUnread(c.Key):
		case at.ExecutionID == "":
			c.Status, c.Attempts, c.Last = CellNotRun, 0, nil
		default:
			c.Status, at.Status, at.Error = CellRunning, "", nil
		}
	}
	run.Status, run.Job, run.Left = StatusRunning, run.Left, nil
	a.enter(kernelID)
	a.addNote("the VM that had the run answers again")
	return true
}

// hasUnread reports whether the job has a step of the cell with that key whose end was not read.
func (j *JobRecord) hasUnread(key int) bool {
	return j != nil && slices.ContainsFunc(j.Steps[min(j.Entry, len(j.Steps)):], func(s Step) bool { return s.Cell == key })
}

// noteRerun says which cells run for another time.
func (a *advance) noteRerun() {
	var again []string
	for _, c := range a.run.Plan {
		if c.Last != nil {
			again = append(again, fmt.Sprint(c.Index))
		}
	}
	a.addNote("the kernel is new, without the variables of the cells that ran: the run starts again at its first cell; these cells had run and run again: %s", strings.Join(again, ", "))
}

// resetAfter makes the cells after the one with a key run again; without that cell, all of them.
func (r *RunRecord) resetAfter(key int) {
	from := 1 + slices.IndexFunc(r.Plan, func(c CellRecord) bool { return c.Key == key })
	for i := from; i < len(r.Plan); i++ {
		c := &r.Plan[i]
		c.Status, c.Why, c.SkippedBecause, c.Attempts = CellNotRun, "", nil, 0
	}
}
