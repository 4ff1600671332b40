package nbrun

import (
	"context"
	"errors"

	"colabrelay/relay/client"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/plain"
)

// savesStates reports whether cells tagged save-state save the kernel's variables.
func (a *advance) savesStates() bool { return a.spec.StateName != "" && a.opt.States != nil }

// keepState saves the variables after a cell that asks for it, or restores them into a new kernel,
// and reports whether there is more to do in this call.
func (a *advance) keepState(ctx context.Context) (more bool, err error) {
	run := a.run
	saved := &SavedState{Cell: run.Saving}
	if run.Restoring {
		saved = run.Saved
	}
	done, err := a.transferState(ctx, saved)
	_, unreachable := errors.AsType[*client.Error](err)
	switch {
	case unreachable || ctx.Err() != nil:
		return false, err
	case err == nil && !done: // the call's time is over, and the next one goes on
		return false, nil
	case err == nil && run.Restoring:
		a.adoptRestored()
	case err == nil:
		run.Saved = saved
	case run.Restoring:
		a.addNote("the state saved after the cell with id %s could not be restored, so the run starts again at its first cell: %s", run.handle(saved.Cell), plain.Line(err.Error()))
		run.Saved = nil
		run.resetAfter(0)
	default:
		a.addNote("the variables after the cell with id %s could not be saved: %s", run.handle(saved.Cell), plain.Line(err.Error()))
	}
	run.Saving, run.Restoring = 0, false
	return true, a.save()
}

// transferState saves the state, or restores it, and reports whether that is done.
func (a *advance) transferState(ctx context.Context, saved *SavedState) (done bool, err error) {
	if !a.savesStates() {
		return false, errors.New("state_name is not given any more")
	}
	o := kernelstate.Options{Name: a.spec.StateName, Runtime: a.spec.Runtime, Version: saved.Version, Until: a.opt.Until}
	if a.run.Restoring {
		got, err := kernelstate.Restore(ctx, a.opt.States, a.dir, o)
		a.addNotes(got.Warnings)
		return err == nil && got.Done(), err
	}
	got, err := kernelstate.Save(ctx, a.opt.States, a.dir, o)
	a.addNotes(got.Warnings)
	if err != nil || !got.Done() {
		return false, err
	}
	saved.Version = got.Manifest.Version
	return true, nil
}

// adoptRestored records that the cells up to the restored state need not run in this kernel.
func (a *advance) adoptRestored() {
	a.run.resetAfter(a.run.Saved.Cell)
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		if c.Status == CellSucceeded || c.Status == CellExpectedFailure {
			a.record.ran(c, Step{Source: c.Source, Sent: c.Sent}, c.Status)
		}
	}
}
