package nbrun

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"colabrelay/shared/contract"
)

// maxReruns is how often one call starts the run again in new kernels.
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
	begun := run.Job != nil && (run.Job.Accepted || run.Job.MayRun) || slices.ContainsFunc(run.Plan, func(c CellRecord) bool { return len(c.Attempts) > 0 })
	if run.Job != nil && !run.Job.Accepted && run.Job.MayRun {
		a.addNote("the VM was replaced before it confirmed the run: which cells ran there is unknown")
	}
	run.Status, run.Job, run.Saving, a.now = StatusRunning, nil, 0, reading{}
	a.abandonCell()
	a.enter(kernelID)
	switch {
	case run.Saved != nil && a.savesStates():
		run.Restoring = true
		a.addNote("the kernel is new: the state saved after the cell with id %s is restored, and the run continues after it", run.handle(run.Saved.Cell))
	case !begun:
	case a.spec.OnNewKernel == StopOnNewKernel:
		run.Status = StatusNewKernel
		a.addStep("on_new_kernel=\"rerun\" starts it again at its first cell", "the kernel is new, without the variables of the cells that ran: the run stopped")
		return a.save()
	default:
		a.noteRerun()
		run.resetAfter(0)
	}
	// More than maxReruns end the call. The plan is already that of the newest kernel.
	if a.reruns++; a.reruns <= maxReruns {
		return a.save()
	}
	a.addStep("the same call tries again", "the kernel was replaced again during the call")
	return errEnough
}

// abandonCell gives up the cell that ran in a kernel that has ended.
func (a *advance) abandonCell() {
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		if at := c.Last(); c.Status == CellRunning && at != nil && at.Status == "" {
			at.Status, at.Error = contract.StatusLost, &Failure{Reason: "the kernel or the VM was replaced before its end was read"}
			c.Status = CellLost
		}
	}
}

// noteRerun says which cells run for another time.
func (a *advance) noteRerun() {
	var again []string
	for _, c := range a.run.Plan {
		if len(c.Attempts) > 0 {
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
		c.Status, c.Why, c.SkippedBecause, c.Retries = CellNotRun, "", nil, 0
	}
}
