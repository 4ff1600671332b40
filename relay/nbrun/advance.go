package nbrun

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"colabrelay/relay/jobs"
	"colabrelay/relay/notebook"
	"colabrelay/relay/output"
	"colabrelay/shared/contract"
)

const (
	// closeTime is how long the end of a call may take to write what it has read, also if the
	// call was cancelled.
	closeTime = 20 * time.Second
	// overtime is how long after the end of a call it goes on with what needs no waiting, such as
	// the end of the last cell.
	overtime = 2 * time.Second
	// savePause is the least time between two writes of the record that nothing waits for.
	savePause = 2 * time.Second
)

// errEnough ends a call: there is more to do, and the next call does it.
var errEnough = errors.New("the call's time is over")

// advance carries out one call of Advance.
type advance struct {
	*Run
	vm  VM
	opt Options
	out Outcome

	reruns int               // started by this call
	needs  map[string][]need // of the cells; nil: to be found out
	edits  int               // of the job, that met a conflict in this call
	now    reading           // of the execution that is being read
}

// Advance runs cells until the run ends, or the time is over. An error means that a request
// failed, or that a file could not be written. In any case another call continues the run.
func (r *Run) Advance(ctx context.Context, vm VM, o Options) (Outcome, error) {
	a := &advance{Run: r, vm: vm, opt: o}
	switch {
	case r.spec.DryRun:
		return a.dryRun(ctx)
	case r.repeat:
		a.addNote("this run ended at %s, and the answer to that call may be lost: nothing ran again; call again to run the cells again", r.run.FinishedAt.Format(time.RFC3339))
		return a.outcome(), nil
	}
	err := a.begin(ctx)
	for more := err == nil; more && err == nil && time.Since(o.Until) < overtime; {
		more, err = a.step(ctx)
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	err = a.close(ctx, err)
	return a.outcome(), err
}

// begin makes the plan of a new run, and finds what is on the VM of a recorded one.
func (a *advance) begin(ctx context.Context) error {
	k, err := a.currentKernel(ctx)
	if err != nil {
		return err
	}
	if a.replaced != nil {
		if err := a.replaced.Stop(ctx, a.vm, true); err != nil && !jobs.IsRefused(err) {
			return err
		}
		a.replaced = nil
	}
	if err := a.openWork(); err != nil {
		return err
	}
	a.record.Runtime = a.spec.Runtime
	switch run := a.run; {
	case !run.Planned:
		if err := a.restartKernel(ctx, &k); err != nil {
			return err
		}
		a.enter(k.KernelID)
		return a.plan(ctx)
	case run.Status == StatusNewKernel && a.comeBack(k.KernelID):
	case run.Status == StatusNewKernel && a.spec.OnNewKernel == StopOnNewKernel:
		return nil
	case run.Status == StatusNewKernel, run.Job == nil && run.KernelID != k.KernelID:
		return a.newKernel(ctx, k.KernelID)
	default:
		run.Status = StatusRunning
	}
	return nil
}

// currentKernel asks the VM for its kernel.
func (a *advance) currentKernel(ctx context.Context) (contract.Kernel, error) {
	k, err := a.vm.CurrentKernel(ctx)
	a.out.Answered = a.out.Answered || err == nil
	return k, err
}

// openWork opens the file that the run reads and writes.
func (a *advance) openWork() (err error) {
	if a.spec.OutputPath != "" {
		if err = a.makeCopy(); err != nil {
			return err
		}
		if a.work, err = notebook.OpenFile(a.spec.OutputPath, a.dir); err != nil {
			return err
		}
	}
	var save output.SaveText
	if a.opt.SaveDir != "" {
		save = output.SaveIn(filepath.Join(a.opt.SaveDir, "notebooks"), "LOCAL_SAVE_DIR/notebooks", Name(a.record.Path))
	}
	a.outputs.begin(!a.spec.Unsaved, a.vm, save)
	return a.look()
}

// restartKernel restarts the kernel if the run asks for that. The kernel that it ends is recorded
// before, so that a repeated restart ends no other one.
func (a *advance) restartKernel(ctx context.Context, k *contract.Kernel) (err error) {
	if !a.spec.Restart {
		return nil
	}
	if a.run.KernelID == "" {
		a.run.KernelID = k.KernelID
		if err := a.save(); err != nil {
			return err
		}
	}
	*k, err = a.vm.RestartKernel(ctx, a.run.KernelID)
	return err
}

// step does the next thing, and reports whether there is more to do in this call.
func (a *advance) step(ctx context.Context) (more bool, err error) {
	run := a.run
	if run.Status.Finished() || run.Status == StatusNewKernel {
		return false, nil
	}
	if err := a.followChanges(ctx); err != nil {
		return false, err
	}
	switch {
	case run.Job != nil:
		return a.goOnWithJob(ctx)
	case a.stopped:
		a.stopped = false
		return false, a.finish(ctx, StatusInterrupted)
	case run.Restoring || run.Saving != 0:
		return a.keepState(ctx)
	}
	if err := a.startJob(ctx); err != nil || run.Job != nil {
		return err == nil, err
	}
	return false, a.finish(ctx, "")
}

// finish records the end of the run: nothing is in flight, and nothing is left to run. If the run was
// stopped before its end, as says how.
func (a *advance) finish(ctx context.Context, as Status) error {
	if err := a.flush(ctx, true); err != nil {
		return err
	}
	run, failed := a.run, a.run.unsuccessful()
	switch {
	case as != "":
		run.Status = as
	case failed == nil:
		run.Status = StatusSucceeded
	default:
		run.Status = StatusFailed
	}
	if !run.Status.Finished() {
		return nil
	}
	now := time.Now().UTC()
	run.FinishedAt = &now
	why := "the run ended before it: " + Words(run.Status)
	if failed != nil {
		why = fmt.Sprintf("the run stopped because the cell %s did not succeed", failed.Handle)
	}
	for i := range run.Plan {
		if c := &run.Plan[i]; c.Status == CellNotRun && c.Why == "" {
			c.Why = why
		}
	}
	return nil
}

// close writes what the call has read. It does so also after an error, and if ctx has ended.
func (a *advance) close(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err = errors.Join(err, a.flush(ctx, true))
	if !a.run.Planned {
		return err
	}
	return errors.Join(err, a.save())
}

// isCell reports whether this is the run of a single cell.
func (a *advance) isCell() bool { return a.run != &a.record.Run }

// Interrupt interrupts the running cell, and nothing further of the run begins. The next Advance
// records how it ended; the run is interrupted then, and may be continued.
func (r *Run) Interrupt(ctx context.Context, vm VM) error {
	if r.run.Job != nil {
		return r.run.Job.Stop(ctx, vm, true)
	}
	r.stopped = !r.run.Status.Finished()
	return nil
}

// outcome describes the run at the end of the call.
func (a *advance) outcome() Outcome {
	out := a.out
	out.Status, out.Notes, out.SavedFiles = a.run.Status, a.notes, a.outputs.saved
	out.CanContinue = !a.run.Status.Finished()
	for i := range a.run.Plan {
		if c := &a.run.Plan[i]; c.Status == CellRunning && c.Last != nil {
			out.Current = c
		}
	}
	return out
}
