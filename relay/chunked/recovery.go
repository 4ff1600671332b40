package chunked

// This file continues a run in a kernel that does not have the variables that iterations
// pass on. A new kernel continues at Record.Done (entry_of in registry.py of shared/kernelpy),
// unless kept variables are restored: then resumeAtKeptIteration takes the record and the
// kernel back to KeptVariables.Done, or restart to iteration 0.

import (
	"context"
	"errors"
	"fmt"

	"colabrelay/relay/kernelstate"
	"colabrelay/relay/plain"
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

// choosePolicy returns what the next batch does in a kernel without the variables.
func (run *runner) choosePolicy() newKernelPolicy {
	switch {
	case run.record.Recover == recoverySetup:
		return policyPrepare
	case run.spec.OnNewKernel == NewKernelContinue || run.record.Carried.isEmpty():
		return policyContinue
	}
	return policyStop
}

// checkVariables acts on what a successful batch reported of the variables, and reports
// whether the run can continue.
func (run *runner) checkVariables(b *Batch) bool {
	switch {
	case run.seen.variables == eventPrepared:
		run.record.Recover = recoveryLoad
	case run.seen.variables == eventLost:
		return run.handleLoss()
	case b.Policy == policyPrepare: // the variables exist: a state was restored
		run.record.Recover = recoveryNone
	}
	return true
}

// handleLoss decides how to continue in a kernel without the variables, and reports whether
// the run can continue.
func (run *runner) handleLoss() bool {
	run.recoveries++
	r := run.record
	switch {
	case r.Carried.isEmpty(): // the lost batch was the first to report this
		return true
	case run.opt.Keeper != nil && r.hasUsableCopy() && run.recoveries <= maxRecoveries:
		r.Recover = recoverySetup
		return true
	case run.spec.OnNewKernel == NewKernelRestart:
		run.restart()
		return true
	}
	run.stopWithoutVariables()
	return false
}

// restart starts the run at iteration 0.
func (run *runner) restart() {
	run.addNote("the results of %s are lost, because the new kernel does not have %v; the run starts again at iteration 0, as on_new_kernel requests", plain.Count(run.record.Done, "iteration"), run.record.Carried)
	restarted := run.record.Restarted
	run.dropCopies()
	run.Run.record = newRecord(run.spec)
	run.record.Restarted = restarted
}

func (run *runner) stopWithoutVariables() {
	r := run.record
	lost := &LostVariables{Names: r.Carried.names(), Description: r.Carried.String(), Reason: run.whyLost()}
	r.Status = StatusVariablesLost
	r.Failure = &Failure{Status: string(StatusVariablesLost), Message: "the kernel no longer has " + lost.Description}
	run.out.Stop = &Stop{Lost: lost}
}

// whyLost says why the variables can't be restored from this computer.
func (run *runner) whyLost() string {
	r := run.record
	switch {
	case r.hasUsableCopy() && run.opt.Keeper != nil:
		return "restoring them did not succeed this time"
	case len(r.Unsaveable) > 0:
		return reasons(r.Unsaveable)
	case r.Kept != nil && !r.hasUsableCopy():
		return "the code changed after they were last kept"
	}
	return "the kernel was lost before they could be kept"
}

// restoreVariables loads the kept variables into a kernel in which the setup code has run,
// and reports whether the run can continue.
func (run *runner) restoreVariables(ctx context.Context) (more bool, err error) {
	r := run.record
	got, err := run.opt.Keeper.Restore(ctx, kernelstate.KeptVersion{
		Run: r.Key, Version: r.Kept.Version, Done: r.Kept.Done, Absent: r.Kept.Absent, Until: run.opt.Until,
	})
	var ended *kernelstate.RunError
	switch {
	case errors.As(err, &ended): // the kernel died, or the run was interrupted
		run.addNote("restoring the kept variables ended as %s; it is tried again", ended.Execution.Status)
		r.Recover = recoveryNone
	case errors.Is(err, kernelstate.ErrDamaged), errors.Is(err, kernelstate.ErrNotFound), errors.Is(err, kernelstate.ErrNoVersion):
		run.addNote("the kept variables can't be restored: %v", err)
		run.dropUnusableCopy(kernelstate.Omission{Reason: err.Error()})
	case err != nil:
		return false, err
	case !got.Done():
		run.addNote("the variables of iteration %d are still being restored into the new kernel", r.Kept.Done)
		return false, nil
	case got.Loaded.Missing: // the kernel was replaced again, or a state was restored
		r.Recover = recoveryNone
	case got.Loaded.FailedCount > 0:
		run.addNote("the kept variables can't be loaded: %s", reasons(got.Loaded.Failed))
		run.dropUnusableCopy(got.Loaded.Failed...)
	default:
		run.resumeAtKeptIteration(got)
	}
	return true, run.save()
}

// dropUnusableCopy records that the kept variables can't be restored, and why.
func (run *runner) dropUnusableCopy(why ...kernelstate.Omission) {
	run.record.Kept, run.record.Recover, run.record.Unsaveable = nil, recoveryNone, why
}

// resumeAtKeptIteration takes the record back to the iteration at which the kernel continues
// after the restore: the one that the kept variables belong to.
func (run *runner) resumeAtKeptIteration(got kernelstate.Restored) {
	r := run.record
	r.Recover = recoveryNone
	again := ""
	if n := r.Done - r.Kept.Done; n > 0 {
		again = fmt.Sprintf("; %s since then will run again", plain.Count(n, "iteration"))
	}
	run.addNote("the kernel is new: %v was restored as it was before iteration %d%s", r.Carried, r.Kept.Done, again)
	if id := got.Execution.KernelID; id != "" {
		r.KernelID = id
	}
	r.confirm(r.Kept.Done, r.KernelID, r.InstanceID)
}
