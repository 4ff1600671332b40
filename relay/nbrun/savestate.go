package nbrun

import (
	"context"
	"errors"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/plain"
)

// savesStates reports whether cells tagged save-state save the kernel's variables.
func (a *advance) savesStates() bool { return a.spec.StateName != "" && a.opt.States != nil }

// keepState saves the variables after a cell that asks for it, or restores them into a new
// kernel, and reports whether there is more to do in this call.
func (a *advance) keepState(ctx context.Context) (more bool, err error) {
	if !a.savesStates() {
		a.run().Saving = ""
		if a.run().Restoring {
			a.run().Restoring = false
			a.resetAfter("")
		}
		return true, nil
	}
	if a.run().Restoring {
		return a.restoreState(ctx)
	}
	return a.saveState(ctx)
}

func (a *advance) saveState(ctx context.Context) (more bool, err error) {
	run := a.run()
	version, notes, err := a.opt.States.Save(ctx, a.spec.StateName, a.opt.Until)
	a.addNotes(notes)
	var unreachable *client.Error
	switch {
	case errors.As(err, &unreachable) || ctx.Err() != nil:
		return false, err
	case err != nil:
		a.addNote("the variables after the cell %s could not be saved: %s", run.Saving, plain.Line(err.Error()))
		run.Saving = ""
		return true, nil
	case version == "": // the call's time is over
		return false, nil
	}
	run.Saved, run.Saving = &SavedState{Cell: run.Saving, Version: version}, ""
	return true, a.save()
}

func (a *advance) restoreState(ctx context.Context) (more bool, err error) {
	run := a.run()
	done, notes, err := a.opt.States.Restore(ctx, a.spec.StateName, run.Saved.Version, a.opt.Until)
	a.addNotes(notes)
	var unreachable *client.Error
	switch {
	case errors.As(err, &unreachable) || ctx.Err() != nil:
		return false, err
	case err != nil:
		a.addNote("the state saved after the cell %s could not be restored, so the run starts again at its first cell: %s", run.Saved.Cell, plain.Line(err.Error()))
		run.Saved, run.Restoring = nil, false
		a.resetAfter("")
		return true, nil
	case !done:
		return false, nil
	}
	run.Restoring = false
	a.resetAfter(run.Saved.Cell)
	a.adoptRestored()
	if err := a.anchor(ctx); err != nil {
		return false, err
	}
	return true, a.save()
}

// adoptRestored records that the cells before the restored state need not run in this kernel.
func (a *advance) adoptRestored() {
	life := &a.record.Life
	for i := range a.run().Plan {
		if c := &a.run().Plan[i]; c.Status == CellSucceeded || c.Status == CellExpectedFailure {
			life.Runs = append(life.Runs, CellRun{c.Handle, c.Source, c.Sent, c.Status})
			a.record.History[c.Handle] = LastRun{KernelID: life.KernelID, Source: c.Source, Status: c.Status}
		}
	}
}

// kernelStates saves and restores variables with package kernelstate.
type kernelStates struct {
	vm           *client.Client
	dir, runtime string
}

// KernelStates returns the States whose versions are in dir, among those that people save.
func KernelStates(vm *client.Client, dir, runtime string) States {
	return &kernelStates{vm, dir, runtime}
}

func (k *kernelStates) Save(ctx context.Context, name string, until time.Time) (version string, notes []string, err error) {
	got, err := kernelstate.Save(ctx, k.vm, k.dir, kernelstate.Options{Name: name, Runtime: k.runtime, Until: until})
	if err != nil || !got.Done() {
		return "", got.Warnings, err
	}
	return got.Manifest.Version, got.Warnings, nil
}

func (k *kernelStates) Restore(ctx context.Context, name, version string, until time.Time) (done bool, notes []string, err error) {
	got, err := kernelstate.Restore(ctx, k.vm, k.dir, kernelstate.Options{Name: name, Runtime: k.runtime, Version: version, Until: until})
	return err == nil && got.Done(), got.Warnings, err
}
