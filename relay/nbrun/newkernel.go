package nbrun

import (
	"context"
	"slices"
	"time"

	"colabrelay/shared/contract"
)

const (
	// maxReruns is how often one call starts the run again in new kernels. Without it, cells that
	// end kernels in turn would keep the call busy until its time is over.
	maxReruns = 3
	// doneRestart is RunRecord.Restart after the kernel was restarted.
	doneRestart = "done"
)

// restartKernel restarts the kernel if the run asks for that, once: the kernel that it ends is
// recorded before, so that a repeated restart ends no other one.
func (a *advance) restartKernel(ctx context.Context, k *contract.Kernel) (err error) {
	run := a.run()
	if !a.spec.Restart || run.Restart == doneRestart || run.Planned {
		return nil
	}
	if run.Restart == "" {
		run.Restart = k.KernelID
		if err := a.save(); err != nil {
			return err
		}
	}
	if *k, err = a.vm.RestartKernel(ctx, run.Restart); err != nil {
		return err
	}
	run.Restart = doneRestart
	return nil
}

// enter makes a kernel the run's: the next cells run there.
func (a *advance) enter(kernelID string) {
	a.run().KernelID = kernelID
	a.record.enter(kernelID, a.vm.InstanceID())
}

// enter makes a kernel the present one. What ran in another one is no longer of use.
func (r *Record) enter(kernelID, instanceID string) {
	if r.Life.KernelID != kernelID {
		r.Life = Life{KernelID: kernelID}
		r.Singles = slices.DeleteFunc(r.Singles, func(s *Single) bool { return s.Ended }) // their results are gone
		r.dropCode()
	}
	r.Life.InstanceID = instanceID
}

// meetKernel asks which kernel is the present one, and acts on a new one.
func (a *advance) meetKernel(ctx context.Context) error {
	k, err := a.vm.CurrentKernel(ctx)
	if err != nil {
		return err
	}
	return a.meet(ctx, k.KernelID)
}

// meetVM acts on a new VM or executor: no kernel of the one before is left, whatever the new one
// calls its own.
func (a *advance) meetVM(ctx context.Context) error {
	k, err := a.vm.CurrentKernel(ctx)
	if err != nil {
		return err
	}
	return a.newKernel(ctx, k.KernelID)
}

func (a *advance) meet(ctx context.Context, kernelID string) error {
	if a.run().KernelID == kernelID {
		return nil
	}
	return a.newKernel(ctx, kernelID)
}

// checkKernel reports whether a cell ran in another kernel than those before it.
func (a *advance) checkKernel(ctx context.Context, f *Flight, e contract.Execution) (elsewhere bool, err error) {
	if e.KernelID == "" || e.KernelID == a.run().KernelID {
		return false, nil
	}
	if !a.run().ranAny(f.Handle) || a.record.Life.isUnused() {
		a.enter(e.KernelID) // it is the first one of the run, or the run's kernel ended before anything ran there
		return false, nil
	}
	a.run().cell(f.Handle).Status = CellNotRun
	return true, a.newKernel(ctx, e.KernelID)
}

// ranAny reports whether a cell other than this one has ended in this run.
func (r *RunRecord) ranAny(except string) bool {
	for i := range r.Plan {
		c := &r.Plan[i]
		if c.Handle != except && len(c.Attempts) > 0 && c.Attempts[0].Status != "" {
			return true
		}
	}
	return false
}

// newKernel acts on a kernel that has none of the run's variables.
func (a *advance) newKernel(ctx context.Context, kernelID string) error {
	if err := a.abandon(ctx); err != nil {
		return err
	}
	began := a.run().ranAny("")
	a.enter(kernelID)
	switch {
	case a.run().Stopping != "":
		return nil
	case !began:
		return a.boundReruns()
	case a.spec.OnNewKernel == StopOnNewKernel:
		a.run().Status = StatusNewKernel
		a.addNote("the kernel is new, without the variables of the cells that ran: the run stopped, as on_new_kernel requests; on_new_kernel=\"rerun\" continues it")
		return nil
	}
	return a.rerun(ctx)
}

// abandon forgets what is in flight: it belongs to a kernel that has ended. What the VM may
// still have in its queue is cancelled.
func (a *advance) abandon(ctx context.Context) error {
	for i := len(a.flying()) - 1; i >= 0; i-- {
		f := a.flying()[i]
		if err := a.interrupt(ctx, f); err != nil {
			return err
		}
		c := a.run().cell(f.Handle)
		at := c.attempt(f.RequestID)
		f.Ended, a.reading(f).end = true, true
		if at == nil || at.Started == nil {
			c.dropAttempt(f.RequestID)
			continue
		}
		at.Status, at.Error = contract.StatusLost, &Failure{Reason: "the kernel or the VM was replaced before its end was read"}
		c.Status = CellLost
	}
	a.dropWritten()
	return nil
}

// rerun starts the run again at its first cell, or after the cell whose state can be restored.
func (a *advance) rerun(ctx context.Context) error {
	run := a.run()
	run.Status, run.RetryAt, run.Saving = StatusRunning, nil, ""
	if run.Saved != nil && a.savesStates() && run.cell(run.Saved.Cell) != nil {
		run.Restoring = true
		a.addNote("the kernel is new: the state saved after the cell %s is restored, and the run continues after it", run.Saved.Cell)
	} else {
		a.resetAfter("")
		a.addNote("the kernel is new, without the variables of the cells that ran: the run starts again at its first cell")
	}
	return a.boundReruns()
}

// boundReruns ends the call after too many new kernels. The plan is already that of the newest.
func (a *advance) boundReruns() error {
	if a.reruns++; a.reruns <= maxReruns {
		return nil
	}
	a.addNote("the kernel was replaced more than %d times in this call: the same call tries again", maxReruns)
	return errEnough
}

// resetAfter makes the cells after one run again; an empty handle means all of them.
func (a *advance) resetAfter(handle string) {
	plan := a.run().Plan
	from := 0
	for i := range plan {
		if plan[i].Handle == handle {
			from = i + 1
		}
	}
	for i := from; i < len(plan); i++ {
		c := &plan[i]
		c.Status, c.Why, c.Stopped, c.SkippedBecause, c.Retries = CellNotRun, "", false, nil, 0
	}
}

// awaitRetry waits until the current cell may be tried again, if that is within the call.
func (a *advance) awaitRetry(ctx context.Context) (more bool, err error) {
	if err := a.outputs.flush(ctx, a.work, true); err != nil {
		return false, err
	}
	at := *a.run().RetryAt
	if at.After(a.opt.Until) && !a.until().Before(a.opt.Until) {
		return false, nil
	}
	if end := a.until(); at.After(end) {
		at = end
	}
	select {
	case <-time.After(time.Until(at)):
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
