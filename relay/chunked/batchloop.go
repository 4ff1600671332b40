package chunked

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"colabrelay/relay/kernelstate"
	"colabrelay/shared/contract"
)

// Options of Advance.
type Options struct {
	Until time.Time // when to return; a batch under way goes on without us
	Live  bool      // someone watches: read a batch while it runs, not only its end
	// Output gets what a batch put out, without markers, in order; may be nil.
	Output func(executionID string, events []contract.Event)
	// Progress is called when more is done; may be nil.
	Progress func(s *Record)
	// Keeper keeps what iterations hand on, within Keep; nil for nobody.
	Keeper *kernelstate.Keeper
	Keep   KeepBounds
}

// Outcome is where a call to Advance left the run.
type Outcome struct {
	Stop  *Stop              // why it stopped, nil when it finished or goes on
	Batch contract.Execution // the last one asked about, without events
	Notes []string           // what happened besides
}

// Stop is a batch that ended otherwise than well.
type Stop struct {
	Execution contract.Execution
	Iteration *int64         // the one that raised
	Setup     bool           // it was the set-up
	Refused   bool           // the code is no Python: nothing ran
	Lost      *LostVariables // the kernel lacks the variables; then there is no Execution
}

// leastBatch is the least time worth beginning another batch in.
const leastBatch = 250 * time.Millisecond

// advance is one call of Advance.
type advance struct {
	*Run
	vm      VM
	opt     Options
	out     Outcome
	batches int // submitted by this call
	silent  int // batches in a row without a marker

	// Of the batch under way:
	marked  bool // a marker of it was seen
	missing bool // the kernel reported that it does not have the Python package
	failed  *marker
	gapTold bool
	// eventLost or eventPrepared, or none: what it told of the variables
	variables  string
	recoveries int // that this call began
}

// Advance runs batches until the run is finished or stops, or the time is over;
// at least one is submitted, or the one in flight is asked about. A batch that
// lost its kernel while this call watched stops the run, so that the caller may
// restore variables first; one found lost is only noted, and its unconfirmed
// iterations run again, in the kernel there is now, after its set-up.
//
// An error is of the line or of the executor, or the state could not be saved.
// Whatever happens, calling again goes on.
func (r *Run) Advance(ctx context.Context, vm VM, o Options) (Outcome, error) {
	if r.state.Status == StatusFinished {
		return Outcome{Notes: r.told()}, nil
	}
	a := &advance{Run: r, vm: vm, opt: o}
	err := a.run(ctx)
	a.out.Notes = r.told()
	if r.begun {
		err = errors.Join(err, r.save())
	}
	return a.out, err
}

func (a *advance) run(ctx context.Context) error {
	a.abandon(ctx)
	a.beginKeeping()
	for first := true; ; first = false {
		if a.state.InFlight == nil && a.state.Remaining() == 0 {
			a.state.finish()
			return a.finished()
		}
		if !first && time.Until(a.opt.Until) < leastBatch {
			return nil
		}
		a.state.Status, a.state.Failure = StatusRunning, nil
		on, err := a.step(ctx)
		if !on || err != nil {
			return err
		}
	}
}

// finished drops what was kept, once the file says that nobody needs it any more.
func (a *advance) finished() error {
	if a.begun {
		if err := a.save(); err != nil {
			return err
		}
	}
	a.endKeeping()
	return nil
}

// step brings kept variables back where the kernel waits for them; else it takes one
// batch as far as it goes, after keeping what is due.
func (a *advance) step(ctx context.Context) (on bool, err error) {
	if a.state.InFlight != nil {
		return a.batch(ctx)
	}
	if a.state.Recover == recoverVariables {
		return a.bringBack(ctx)
	}
	if err := a.keep(ctx); err != nil {
		return false, err
	}
	return a.batch(ctx)
}

// errMissing: the kernel does not have the Python package, so that the batch ran nothing.
var errMissing = errors.New("the kernel does not have the package")

// batch takes one batch as far as it goes and reports whether to go on. If the kernel does
// not have the package, another batch, with the package, takes its place.
func (a *advance) batch(ctx context.Context) (on bool, err error) {
	on, err = a.oneBatch(ctx, false)
	if errors.Is(err, errMissing) {
		return a.oneBatch(ctx, true)
	}
	return on, err
}

func (a *advance) oneBatch(ctx context.Context, withPackage bool) (on bool, err error) {
	a.marked, a.missing, a.failed, a.gapTold, a.variables = false, false, nil, false, ""
	var e contract.Execution
	found := a.state.InFlight != nil
	if found {
		e, err = a.find(ctx)
		if errors.Is(err, errGone) {
			a.state.InFlight = nil
			return true, nil
		}
	} else {
		e, err = a.submit(ctx, withPackage)
		if errors.Is(err, errMoved) {
			return true, nil
		}
	}
	if err != nil {
		return false, err
	}
	found = found && e.Status.Finished()
	if e, err = a.follow(ctx, e); err != nil || !e.End {
		return false, err
	}
	if a.missing && !a.marked && e.Status == contract.StatusSucceeded && !a.state.InFlight.WithPackage {
		a.state.InFlight = nil
		return true, errMissing
	}
	return a.settle(e, found)
}

// submit begins the next batch. What it is about to do is on disk before.
func (a *advance) submit(ctx context.Context, withPackage bool) (contract.Execution, error) {
	if a.vm.InstanceID() == "" { // any signed answer names it
		if _, err := a.vm.List(ctx, 1); err != nil {
			return contract.Execution{}, err
		}
	}
	s := a.state
	hi := min(s.N, s.Done+max(1, a.spec.BatchSize))
	s.InFlight = &Batch{
		RequestID: rand.Text(), InstanceID: a.vm.InstanceID(),
		Lo: s.Done, Hi: hi, Timeout: s.deadline(), SubmittedAt: time.Now().UTC(),
		OnNew: a.onNew(), Analyse: s.Carried == nil, WithPackage: withPackage,
	}
	s.InFlight.CodeSHA256 = hash(a.cell(s.InFlight))
	if err := a.save(); err != nil {
		s.InFlight = nil
		return contract.Execution{}, err
	}
	a.begun = true
	e, err := a.send(ctx)
	if refusedAs(err, contract.CodeNewInstance) {
		known := s.InFlight.InstanceID
		s.InFlight = nil
		if a.batches > 0 || a.vm.InstanceID() == known { // it changed under our eyes
			return e, err
		}
		return e, errMoved // the answer has named the new one
	}
	if err == nil {
		a.batches++
	}
	return e, err
}

// errMoved: the address leads to another VM than the one known; nothing ran there.
var errMoved = errors.New("another VM answers at this address")

// send submits the batch in flight, for the first time or again.
func (a *advance) send(ctx context.Context) (contract.Execution, error) {
	f := a.state.InFlight
	wait := time.Until(a.opt.Until) * 9 / 10 // its answer holds the first events only; the rest is read then
	if a.opt.Live {
		wait = min(wait, liveWait)
	}
	return a.vm.SubmitTo(ctx, f.InstanceID, contract.Submit{
		RequestID: f.RequestID, Code: a.cell(f),
		TimeoutSeconds: f.Timeout, WaitSeconds: max(0, wait.Seconds()), Unstored: true,
	})
}

func refusedAs(err error, code contract.Code) bool {
	var refused *contract.Error
	return errors.As(err, &refused) && refused.Code == code
}

// settle accounts for a batch that ended.
func (a *advance) settle(e contract.Execution, found bool) (on bool, err error) {
	f := a.state.InFlight
	a.state.InFlight = nil
	switch e.Status {
	case contract.StatusSucceeded:
		if a.silent++; a.marked {
			a.silent = 0
		}
		if a.silent > 1 {
			return false, errSilent
		}
		return a.sawVariables(f), nil
	case contract.StatusLost, contract.StatusKernelDied, contract.StatusKernelRestarted, contract.StatusCancelled:
		if found && a.state.Done >= f.Hi {
			return true, nil // all of it was confirmed
		}
		if found {
			a.note("the batch of iterations %d to %d ended as %s: what it had not confirmed, from %d on, runs again", f.Lo, f.Hi-1, e.Status, a.state.Done)
			return true, nil
		}
	}
	a.stop(e)
	return false, nil
}

// stop notes why the run stopped.
func (a *advance) stop(e contract.Execution) {
	stop := &Stop{Execution: e, Refused: e.Status == contract.StatusFailed && !a.marked && !a.gapTold}
	failure := &Failure{Status: string(e.Status), Message: e.Reason}
	if m := a.failed; m != nil {
		stop.Setup = m.Event == eventSetupFailed
		switch {
		case e.Status == contract.StatusTimedOut:
			a.state.outlasted(m.Seconds, stop.Setup)
		case e.Status == contract.StatusFailed && !stop.Setup:
			stop.Iteration = &m.Done
		}
	}
	if e.Error != nil && e.Status == contract.StatusFailed {
		failure.Message = e.Error.EName + ": " + e.Error.EValue
	}
	failure.Iteration = stop.Iteration
	a.state.Status, a.state.Failure = Status(e.Status), failure
	a.out.Stop = stop
}
