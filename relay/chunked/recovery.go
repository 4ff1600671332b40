package chunked

import (
	"context"
	"errors"

	"colabrelay/relay/kernelstate"
)

// maxRecoveries of one call: a kernel that dies while its variables are brought back
// must not keep a call busy for ever.
const maxRecoveries = 3

// LostVariables is what a kernel has not, so that iterations can't go on there by themselves.
type LostVariables struct {
	Names       []string // what iterations hand on, as far as it can be told
	Reason      string   // why it is not on this computer either
	Description string   // Names in words
}

// onNew is what the next batch does in a kernel without the variables.
func (a *advance) onNew() onNew {
	switch {
	case a.state.Recover == recoverSetup:
		return onNewPrepare
	case a.spec.OnNew == NewKernelContinue || a.state.Carried.nothing():
		return onNewContinue
	}
	return onNewStop
}

// sawVariables decides what follows a batch that ended well, by what it told of the
// variables, and reports whether to go on.
func (a *advance) sawVariables(f *Batch) bool {
	s := a.state
	switch {
	case a.variables == eventPrepared:
		s.Recover = recoverVariables
	case a.variables == eventLost:
		return a.lost()
	case f.OnNew == onNewPrepare: // they are there: somebody restored a state meanwhile
		s.Recover = recoverNone
	}
	return true
}

// lost decides how to go on in a kernel without the variables.
func (a *advance) lost() bool {
	a.recoveries++
	s := a.state
	switch {
	case s.Carried.nothing(): // known only now
		return true
	case a.opt.Keeper != nil && s.usable() && a.recoveries <= maxRecoveries:
		s.Recover = recoverSetup
		return true
	case a.spec.OnNew == NewKernelRestart:
		a.restart()
		return true
	}
	a.stopLost()
	return false
}

// restart begins the run again at 0.
func (a *advance) restart() {
	a.note("the kernel is a new one, without what %d iterations left in %s: the run begins again at iteration 0, as on_new_kernel asks", a.state.Done, a.built())
	restarted := a.state.Restarted
	a.endKeeping()
	a.Run.state = newRecord(a.spec)
	a.state.Restarted = restarted
}

func (a *advance) stopLost() {
	s, lost := a.state, &LostVariables{Names: a.state.Carried.names(), Description: a.built()}
	switch {
	case s.usable() && a.opt.Keeper != nil:
		lost.Reason = "bringing them back did not work this time"
	case len(s.Unkept) > 0:
		lost.Reason = reasons(s.Unkept)
	case s.Kept != nil && !s.usable():
		lost.Reason = "the code changed since they were kept last"
	default:
		lost.Reason = "the kernel was lost before they could be kept"
	}
	s.Status = StatusVariablesLost
	s.Failure = &Failure{Status: string(StatusVariablesLost), Message: "the kernel no longer has " + lost.Description}
	a.out.Stop = &Stop{Lost: lost}
}

// bringBack loads the kept variables into the kernel, where the set-up has run.
func (a *advance) bringBack(ctx context.Context) (on bool, err error) {
	s := a.state
	got, err := a.opt.Keeper.Restore(ctx, kernelstate.KeptVersion{
		Run: s.Key, Version: s.Kept.Version, Done: s.Kept.Done, Absent: s.Kept.Absent, Until: a.opt.Until,
	})
	var ended *kernelstate.RunError
	switch {
	case errors.As(err, &ended): // the kernel died, or somebody interrupted it
		a.note("bringing the kept variables back ended as %s; it is tried again", ended.Execution.Status)
		s.Recover = recoverNone
	case errors.Is(err, kernelstate.ErrDamaged), errors.Is(err, kernelstate.ErrNotFound), errors.Is(err, kernelstate.ErrNoVersion):
		a.note("the kept variables can't be brought back: %v", err)
		s.Kept, s.Recover = nil, recoverNone
		s.Unkept = []kernelstate.Omission{{Reason: err.Error()}}
	case err != nil:
		return false, err
	case !got.Done():
		a.note("the variables of iteration %d are on their way into the new kernel", s.Kept.Done)
		return false, nil
	case got.Loaded.Missing: // another kernel again, or a state of the user's is there
		s.Recover = recoverNone
	case got.Loaded.FailedCount > 0:
		a.note("the kept variables can't be loaded: %s", reasons(got.Loaded.Failed))
		s.Kept, s.Recover, s.Unkept = nil, recoverNone, got.Loaded.Failed
	default:
		a.broughtBack(got)
	}
	return true, a.save()
}

// broughtBack goes back to the iteration that the variables belong to.
func (a *advance) broughtBack(got kernelstate.Restored) {
	s := a.state
	s.Recover = recoverNone
	if again := s.Done - s.Kept.Done; again > 0 {
		a.note("the kernel is a new one: %s came back as after iteration %d, and the %d iterations since then run again", a.built(), s.Kept.Done-1, again)
	} else {
		a.note("the kernel is a new one: %s came back as after iteration %d", a.built(), s.Kept.Done-1)
	}
	if id := got.Execution.KernelID; id != "" {
		s.KernelID = id
	}
	s.confirm(s.Kept.Done, s.KernelID, s.InstanceID)
}
