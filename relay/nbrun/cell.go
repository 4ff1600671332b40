package nbrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"colabrelay/relay/jobs"
	"colabrelay/relay/parameters"
	"colabrelay/shared/contract"
)

// RunCell runs one cell of the notebook at path, in one execution and without retries: a job of one
// step. The same call finds the cell that an earlier one started with the same source, waits on,
// and answers its end once: it returns the execution as last read, without events, and notes.
// ErrConflict means that it runs with another source, ErrBusy that a run of the whole notebook is
// being continued by another call. Of the Spec, Cells is the cell's handle, and Path, Runtime and
// CellTimeout count.
func RunCell(ctx context.Context, vm VM, dir string, s Spec, o Options) (x contract.Execution, notes []string, err error) {
	r, err := openRecord(dir, s.Path, false)
	if err != nil {
		return x, nil, err
	}
	defer r.Close()
	r.spec, r.values = s, &parameters.Values{}
	a := &advance{Run: r, vm: vm, opt: o}
	if err = a.runCell(ctx); a.isCell() { // something was started
		err = a.close(ctx, err)
	}
	return a.out.Execution, a.notes, err
}

func (a *advance) runCell(ctx context.Context) error {
	if err := a.openWork(); err != nil {
		return err
	}
	now, err := a.target(a.spec.Cells)
	if err != nil {
		return err
	}
	if a.vm.InstanceID() == "" {
		if _, err := a.currentKernel(ctx); err != nil {
			return err
		}
	}
	if job := a.record.Run.Job; job != nil && job.InstanceID == a.vm.InstanceID() {
		if planned := a.record.Run.cell(now.handle); planned != nil && planned.pending() {
			return fmt.Errorf("%w: it belongs to an unfinished run of the notebook, which run_notebook continues", ErrConflict)
		}
	}
	if one := a.record.ofCell(now.handle); one != nil {
		a.run = one
		if again, err := a.followEarlier(ctx, now); err != nil || !again {
			return err
		}
	}
	if err := a.startCell(ctx, now); err != nil {
		return err
	}
	return a.followCell(ctx)
}

// target returns the cell that the call names.
func (a *advance) target(handle string) (*cell, error) {
	if c := a.view.byHandle[handle]; c != nil {
		return c, nil
	}
	i, err := a.view.document.Find(handle)
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: cell %d has no code: it is blank, or not a code cell", ErrSpec, i)
}

// followEarlier follows what an earlier call started, and reports whether the cell is to be run anew:
// it did not run, or has ended with another source. If that has not begun, it does not run.
func (a *advance) followEarlier(ctx context.Context, now *cell) (again bool, err error) {
	one, until := a.run, a.opt.Until
	stale := one.Plan[0].Source != now.source
	if stale {
		if err := one.Job.Stop(ctx, a.vm, false); err != nil {
			return false, err
		}
		if !one.Job.Accepted && one.Job.InstanceID == a.vm.InstanceID() { // it never arrived
			a.forget(one)
			return true, nil
		}
		a.opt.Until = time.Now()
	} else if j, err := a.vm.Job(ctx, one.Job.JobID, 0, 0); err == nil && j.State.Ended() {
		a.addNote("this is the end of the execution that an earlier call started; the same call runs the cell again")
	}
	err = a.followCell(ctx)
	a.opt.Until = until
	switch {
	case err != nil:
		return false, err
	case stale && one.Job != nil:
		return false, fmt.Errorf("%w: wait for its end, or interrupt the execution %s", ErrConflict, a.out.Execution.ExecutionID)
	}
	return stale || one.Job == nil && one.Plan[0].Status == CellNotRun, nil
}

// startCell prepares the job of a cell.
func (a *advance) startCell(ctx context.Context, now *cell) error {
	k, err := a.currentKernel(ctx)
	if err != nil {
		return err
	}
	one := newRunRecord(a.spec)
	one.KernelID, one.Planned = k.KernelID, true
	one.plan(now)
	a.record.Runtime = a.spec.Runtime
	a.run, a.now, a.out = &one, reading{}, Outcome{}
	a.record.Cells = append(a.record.Cells[max(0, len(a.record.Cells)+1-maxCells):], a.run)
	step := a.stepFor(&one.Plan[0], now, nil)
	step.Attempts = 1
	if a.spec.CellTimeout > 0 { // goes before the cell's tag
		step.TimeoutSeconds = min(a.spec.CellTimeout, contract.MaxTimeout).Seconds()
	}
	a.prepareJob([]contract.JobStep{step}, []Step{{step.StepID, one.Plan[0].Key, now.source, now.sent, step.Attempts}})
	return nil
}

// forget drops a run of a single cell.
func (a *advance) forget(one *RunRecord) {
	a.record.Cells = slices.DeleteFunc(a.record.Cells, func(r *RunRecord) bool { return r == one })
}

// loseCell gives up a run of a single cell, and returns the error that says so.
func (a *advance) loseCell(one *RunRecord, why error) error {
	c := &one.Plan[0]
	a.record.ran(c, Step{Source: c.Source, Sent: c.Sent}, CellLost)
	a.forget(one)
	what := "the VM no longer knows how it ended"
	if errors.Is(why, jobs.ErrReplaced) {
		what = "another VM has replaced the one that had it, so how it ended is unknown"
	}
	return fmt.Errorf("%w: cell %d (id %s): %s", ErrCellLost, c.Index, c.Handle, what)
}

// followCell follows the cell to its end, or until the call's time is over.
func (a *advance) followCell(ctx context.Context) error {
	one := a.run
	if one.KernelID != "" {
		a.record.KernelID = one.KernelID // in which the cell runs
	}
	j, err := a.follow(ctx)
	switch {
	case jobs.IsGone(err):
		return a.loseCell(one, err)
	case err != nil && one.Job == nil: // the VM refused it
		a.forget(one)
		return err
	case err != nil || !one.Job.IsRead(j):
		if a.out.Execution.ExecutionID == "" { // it has not begun
			a.out.Execution = contract.Execution{Status: contract.StatusQueued, Behind: j.Behind}
		}
		return err
	}
	if one.Plan[0].Status == CellNotRun { // its kernel ended before its turn
		a.out.Execution = contract.Execution{Status: contract.StatusCancelled, Reason: j.Reason, End: true}
	}
	one.Job = nil
	a.forget(one)
	return nil
}
