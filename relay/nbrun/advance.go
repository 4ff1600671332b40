package nbrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"colabrelay/relay/notebook"
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

// advance carries out one call of Advance.
type advance struct {
	*Run
	vm  VM
	opt Options
	out Outcome

	reruns int // started by this call
}

// Advance runs cells until the run ends, or the time is over. An error means that a request
// failed, or that a file could not be written. In any case another call continues the run.
func (r *Run) Advance(ctx context.Context, vm VM, o Options) (Outcome, error) {
	a := &advance{Run: r, vm: vm, opt: o}
	switch {
	case r.spec.DryRun:
		return a.dryRun(ctx)
	case r.repeat:
		return a.repeatEnd()
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
	k, err := a.vm.CurrentKernel(ctx)
	if err != nil {
		return err
	}
	a.out.Answered = true
	if len(k.KernelID) > maxKernelID {
		return fmt.Errorf("%w: the kernel_id has %d bytes", errAnswer, len(k.KernelID))
	}
	if err := a.interruptReplaced(ctx); err != nil {
		return err
	}
	if err := a.openWork(ctx); err != nil {
		return err
	}
	if err := a.restartKernel(ctx, &k); err != nil {
		return err
	}
	a.record.Runtime = a.spec.Runtime
	if !a.run().Planned {
		a.enter(k.KernelID)
		return a.plan(ctx)
	}
	if a.run().Status != StatusNewKernel {
		a.run().Status = StatusRunning
		return a.find(ctx, k.KernelID)
	}
	if a.spec.OnNewKernel == StopOnNewKernel {
		return nil
	}
	a.enter(k.KernelID)
	return a.rerun(ctx)
}

func (a *advance) run() *RunRecord { return &a.record.Run }

// step does the next thing, and reports whether there is more to do in this call.
func (a *advance) step(ctx context.Context) (more bool, err error) {
	if a.run().Status.Finished() || a.run().Status == StatusNewKernel {
		return false, nil
	}
	if err := a.checkDeadline(ctx); err != nil {
		return false, err
	}
	if err := a.followChanges(ctx); err != nil {
		return false, err
	}
	if a.run().Restoring || a.run().Saving != "" {
		return a.keepState(ctx)
	}
	if err := a.fill(ctx); err != nil {
		return false, err
	}
	switch f := a.head(); {
	case f != nil:
		return a.read(ctx, f)
	case a.run().RetryAt != nil && a.run().Stopping == "":
		return a.awaitRetry(ctx)
	case a.hasMore(): // the VM was replaced while cells were sent to it
		return true, nil
	}
	return false, a.finish(ctx)
}

// hasMore reports whether cells are to be run.
func (a *advance) hasMore() bool {
	run := a.run()
	pending := func(c CellRecord) bool { return c.pending() }
	return run.Stopping == "" && !run.Status.Finished() && run.Status != StatusNewKernel && (run.Restoring || slices.ContainsFunc(run.Plan, pending))
}

// until is when the call must stop waiting: at its end, or at the run's.
func (a *advance) until() time.Time {
	if end := a.deadline(); !end.IsZero() && end.Before(a.opt.Until) && a.run().Stopping == "" {
		return end
	}
	return a.opt.Until
}

// deadline is when the run's time is over; zero for never.
func (a *advance) deadline() time.Time {
	if a.spec.RunTimeout == 0 {
		return time.Time{}
	}
	return a.run().StartedAt.Add(a.spec.RunTimeout)
}

// checkDeadline ends the run when its time is over.
func (a *advance) checkDeadline(ctx context.Context) error {
	end := a.deadline()
	if end.IsZero() || a.run().Stopping != "" || time.Now().Before(end) {
		return nil
	}
	a.addNote("the time of the run, %s, is over: the running cell was interrupted, and the others were not run", a.spec.RunTimeout)
	return a.stop(ctx, StatusTimedOut, 0)
}

// stop ends the run with this status when what is in flight has ended. The flights from
// position from on are cancelled, or interrupted.
func (a *advance) stop(ctx context.Context, s Status, from int) error {
	a.run().Stopping = s
	return a.withdraw(ctx, from, a.interrupt)
}

// finish records the end of the run: nothing is in flight, and nothing is left to run.
func (a *advance) finish(ctx context.Context) error {
	if err := a.outputs.flush(ctx, a.work, true); err != nil {
		return err
	}
	run := a.run()
	run.RetryAt = nil
	switch {
	case run.Stopping != "":
		run.Status = run.Stopping
	case run.succeeded():
		run.Status = StatusSucceeded
	default:
		run.Status = StatusFailed
	}
	if run.Status.Finished() {
		now := time.Now().UTC()
		run.FinishedAt = &now
		run.explainRest()
	}
	return nil
}

// succeeded reports whether no cell failed or was skipped.
func (r *RunRecord) succeeded() bool {
	for i := range r.Plan {
		switch c := &r.Plan[i]; {
		case c.Status == CellSucceeded, c.Status == CellExpectedFailure:
		case c.Status == CellNotRun && c.Why != "" && !c.Stopped:
		default:
			return false
		}
	}
	return true
}

// explainRest says of the cells that have not run why.
func (r *RunRecord) explainRest() {
	for i := range r.Plan {
		if c := &r.Plan[i]; c.Status == CellNotRun && c.Why == "" {
			c.Why, c.Stopped = fmt.Sprintf("the run ended before it: %s", r.Status), true
		}
	}
}

// close writes what the call has read. It does so also after an error, and if ctx has ended.
func (a *advance) close(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err = errors.Join(err, a.outputs.flush(ctx, a.work, true))
	a.dropWritten()
	a.addNotes(a.outputs.takeNotes())
	if a.run().ID == "" || !a.run().Planned {
		return err
	}
	if saveErr := a.save(); saveErr != nil {
		return errors.Join(err, saveErr)
	}
	path, reportErr := writeReport(a.Path(), a.record)
	a.reports = path
	return errors.Join(err, reportErr)
}

// saveSometimes writes the record if the last time is a while ago, for readers of the record.
func (a *advance) saveSometimes() error {
	if time.Since(a.savedAt) < savePause {
		return nil
	}
	return a.save()
}

// cell returns the record of a planned cell; nil for none. It is asked of each cell in turn, so it
// remembers the places.
func (r *RunRecord) cell(handle string) *CellRecord {
	i, known := r.places[handle]
	if len(r.places) != len(r.Plan) || known && r.Plan[i].Handle != handle {
		r.places = make(map[string]int, len(r.Plan))
		for k := range r.Plan {
			r.places[r.Plan[k].Handle] = k
		}
		i, known = r.places[handle]
	}
	if !known {
		return nil
	}
	return &r.Plan[i]
}

// pending reports whether the cell is to be run.
func (c *CellRecord) pending() bool {
	return (c.Status == CellNotRun || c.Status == CellQueued || c.Status == CellRunning) && c.Why == ""
}

// last returns the cell's newest attempt; nil for none.
func (c *CellRecord) last() *Attempt {
	if len(c.Attempts) == 0 {
		return nil
	}
	return &c.Attempts[len(c.Attempts)-1]
}

// openWork opens the file that the run reads and writes.
func (a *advance) openWork(ctx context.Context) error {
	var err error
	switch a.spec.Save {
	case SaveNone:
		a.record.Work = ""
	case SaveCopy:
		if err = a.makeCopy(); err == nil {
			a.work, err = notebook.OpenFile(a.spec.OutputPath, a.dir)
		}
		a.record.Work = a.spec.OutputPath
	default:
		a.record.Work = a.file.Path()
	}
	if err != nil {
		return err
	}
	a.outputs.begin(a.spec.Save != SaveNone, a.vm, a.opt.SaveText)
	return a.look()
}

// interruptReplaced interrupts what a replaced run has on the VM, also the cells whose submits
// were not answered. It ignores refusals, because the cells or their VM may have ended.
func (a *advance) interruptReplaced(ctx context.Context) error {
	if err := a.findIDs(ctx, a.replaced); err != nil {
		return err
	}
	for i := len(a.replaced) - 1; i >= 0; i-- {
		f := a.replaced[i]
		if f.ExecutionID == "" || f.Ended || f.InstanceID != a.vm.InstanceID() {
			continue
		}
		var refused *contract.Error
		if _, err := a.vm.Interrupt(ctx, f.ExecutionID); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	a.replaced = nil
	return nil
}
