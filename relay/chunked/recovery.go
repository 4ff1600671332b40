package chunked

import (
	"context"
	"errors"

	"colabrelay/relay/kernelstate"
)

// recovery is the step of restoring kept variables into a new kernel.
type recovery string

const (
	recoveryNone  recovery = ""
	recoverySetup recovery = "setup"     // the setup code must run in the new kernel
	recoveryLoad  recovery = "variables" // it has run: the variables must be loaded
)

// maxRecoveries bounds the recoveries of one call. Without it, a kernel that dies whenever
// its variables are restored would keep the call busy until its time is over.
const maxRecoveries = 3

// LostVariables are variables that the kernel lacks, so that the run stopped.
type LostVariables struct {
	Names       []string // as far as they can be determined
	Reason      string   // why they can't be restored from this computer
	Description string   // Names for a message
}

// onNew returns what the next batch does in a kernel without the variables.
func (a *advance) onNew() onNew {
	switch {
	case a.record.Recover == recoverySetup:
		return onNewPrepare
	case a.spec.OnNew == NewKernelContinue || a.record.Carried.isEmpty():
		return onNewContinue
	}
	return onNewStop
}

// checkVariables acts on what a successful batch reported of the variables, and reports
// whether the run can continue.
func (a *advance) checkVariables(b *Batch) bool {
	switch {
	case a.seen.variables == eventPrepared:
		a.record.Recover = recoveryLoad
	case a.seen.variables == eventLost:
		return a.handleLoss()
	case b.OnNew == onNewPrepare: // the variables exist: a state was restored
		a.record.Recover = recoveryNone
	}
	return true
}

// handleLoss decides how to continue in a kernel without the variables, and reports whether
// the run can continue.
func (a *advance) handleLoss() bool {
	a.recoveries++
	r := a.record
	switch {
	case r.Carried.isEmpty(): // the lost batch was the first to report this
		return true
	case a.opt.Keeper != nil && r.hasUsableCopy() && a.recoveries <= maxRecoveries:
		r.Recover = recoverySetup
		return true
	case a.spec.OnNew == NewKernelRestart:
		a.restart()
		return true
	}
	a.stopWithoutVariables()
	return false
}

// restart starts the run at iteration 0.
func (a *advance) restart() {
	a.addNote("the new kernel does not have %v, which the first %d iterations built up; the run starts again at iteration 0, as on_new_kernel requests", a.record.Carried, a.record.Done)
	restarted := a.record.Restarted
	a.dropCopies()
	a.Run.record = newRecord(a.spec)
	a.record.Restarted = restarted
}

func (a *advance) stopWithoutVariables() {
	r := a.record
	lost := &LostVariables{Names: r.Carried.names(), Description: r.Carried.String(), Reason: a.whyLost()}
	r.Status = StatusVariablesLost
	r.Failure = &Failure{Status: string(StatusVariablesLost), Message: "the kernel no longer has " + lost.Description}
	a.out.Stop = &Stop{Lost: lost}
}

// whyLost says why the variables can't be restored from this computer.
func (a *advance) whyLost() string {
	r := a.record
	switch {
	case r.hasUsableCopy() && a.opt.Keeper != nil:
		return "restoring them did not succeed this time"
	case len(r.Unkept) > 0:
		return reasons(r.Unkept)
	case r.Kept != nil && !r.hasUsableCopy():
		return "the code changed after they were last kept"
	}
	return "the kernel was lost before they could be kept"
}

// restoreVariables loads the kept variables into a kernel in which the setup code has run,
// and reports whether the run can continue.
func (a *advance) restoreVariables(ctx context.Context) (more bool, err error) {
	r := a.record
	got, err := a.opt.Keeper.Restore(ctx, kernelstate.KeptVersion{
		Run: r.Key, Version: r.Kept.Version, Done: r.Kept.Done, Absent: r.Kept.Absent, Until: a.opt.Until,
	})
	var ended *kernelstate.RunError
	switch {
	case errors.As(err, &ended): // the kernel died, or the run was interrupted
		a.addNote("restoring the kept variables ended as %s; it is tried again", ended.Execution.Status)
		r.Recover = recoveryNone
	case errors.Is(err, kernelstate.ErrDamaged), errors.Is(err, kernelstate.ErrNotFound), errors.Is(err, kernelstate.ErrNoVersion):
		a.addNote("the kept variables can't be restored: %v", err)
		a.dropUnusableCopy(kernelstate.Omission{Reason: err.Error()})
	case err != nil:
		return false, err
	case !got.Done():
		a.addNote("the variables of iteration %d are still being restored into the new kernel", r.Kept.Done)
		return false, nil
	case got.Loaded.Missing: // the kernel was replaced again, or a state was restored
		r.Recover = recoveryNone
	case got.Loaded.FailedCount > 0:
		a.addNote("the kept variables can't be loaded: %s", reasons(got.Loaded.Failed))
		a.dropUnusableCopy(got.Loaded.Failed...)
	default:
		a.resumeFromCopy(got)
	}
	return true, a.save()
}

// dropUnusableCopy records that the kept variables can't be restored, and why.
func (a *advance) dropUnusableCopy(why ...kernelstate.Omission) {
	a.record.Kept, a.record.Recover, a.record.Unkept = nil, recoveryNone, why
}

// resumeFromCopy takes the record back to the iteration of the restored variables.
func (a *advance) resumeFromCopy(got kernelstate.Restored) {
	r := a.record
	r.Recover = recoveryNone
	if again := r.Done - r.Kept.Done; again > 0 {
		a.addNote("the kernel is a new one: %v was restored as it was after iteration %d, and the %d iterations since then run again", r.Carried, r.Kept.Done-1, again)
	} else {
		a.addNote("the kernel is a new one: %v was restored as it was after iteration %d", r.Carried, r.Kept.Done-1)
	}
	if id := got.Execution.KernelID; id != "" {
		r.KernelID = id
	}
	r.confirm(r.Kept.Done, r.KernelID, r.InstanceID)
}
