package chunked

import (
	"context"
	"errors"
	"time"

	"colabrelay/relay/kernelstate"
	"colabrelay/shared/contract"
)

// Options of Advance.
type Options struct {
	Until time.Time // when to return; a running batch continues on the VM
	Live  bool      // read a batch while it runs, because a person or model watches, not only at its end
	// Output receives what a batch printed and displayed, without markers, in order. It may
	// be nil.
	Output func(executionID string, events []contract.Event)
	// Progress is called after each marker of finished iterations. It may be nil.
	Progress func(r *Record)
	// Keeper keeps the variables that iterations pass on, within Keep. With nil, nothing is
	// kept.
	Keeper *kernelstate.Keeper
	Keep   KeepBounds
}

// Outcome is the result of a call to Advance.
type Outcome struct {
	Stop  *Stop              // why the run stopped; nil if it finished or can continue
	Batch contract.Execution // the last batch that was read, without events
	Notes []string           // what else happened
}

// Stop describes the batch that stopped a run.
type Stop struct {
	Execution contract.Execution // empty if Lost is set
	Iteration *int64             // the one that raised
	Setup     bool               // the setup code failed
	Refused   bool               // the code has a syntax error: nothing ran
	Lost      *LostVariables     // the kernel lacks variables
}

// minTimeLeft is the least time left of a call in which another batch is worth submitting.
const minTimeLeft = 250 * time.Millisecond

// runner carries out one call of Advance.
type runner struct {
	*Run
	vm             VM
	opt            Options
	out            Outcome
	batches        int // submitted by this call
	withoutMarkers int // successive batches without a marker
	recoveries     int // started by this call

	seen seen
}

// seen is what a call has read of the running batch.
type seen struct {
	marker         bool
	failed         *marker // of an iteration or the setup
	gap            bool
	packageMissing bool   // the kernel reported that it does not have the Python package
	variables      string // eventLost, eventPrepared or empty
}

// Advance runs batches until the run finishes or stops, or the time is over. It submits at
// least one batch, or reads the one that is running. A batch whose kernel was lost during
// this call stops the run, so that the caller may restore variables first. If the kernel
// was lost between two calls, a note says so, and the unconfirmed iterations run again in
// the new kernel after its setup.
//
// An error means that a request failed or that the record could not be saved. In any case
// another call continues the run.
func (r *Run) Advance(ctx context.Context, vm VM, o Options) (Outcome, error) {
	if r.record.Status == StatusFinished {
		return Outcome{Notes: r.noteTexts()}, nil
	}
	run := &runner{Run: r, vm: vm, opt: o}
	err := run.loop(ctx)
	run.out.Notes = r.noteTexts()
	if r.onDisk {
		err = errors.Join(err, r.save())
	}
	return run.out, err
}

// loop repeats step until the run finishes or stops or the call's time is over.
func (run *runner) loop(ctx context.Context) error {
	run.interruptAbandoned(ctx)
	run.prepareKeeping()
	for first := true; ; first = false {
		if run.record.InFlight == nil && run.record.Remaining() == 0 {
			run.record.finish()
			return run.cleanUp()
		}
		if !first && time.Until(run.opt.Until) < minTimeLeft {
			return nil
		}
		run.record.Status, run.record.Failure = StatusRunning, nil
		if more, err := run.step(ctx); !more || err != nil {
			return err
		}
	}
}

// cleanUp deletes the kept variables of a finished run, after the file says that it has
// finished.
func (run *runner) cleanUp() error {
	if run.onDisk {
		if err := run.save(); err != nil {
			return err
		}
	}
	run.dropCopies()
	return nil
}

// step restores kept variables if the kernel waits for them. Otherwise it keeps variables
// if that is due, and runs one batch.
func (run *runner) step(ctx context.Context) (more bool, err error) {
	if run.record.InFlight == nil {
		if run.record.Recover == recoveryLoad {
			return run.restoreVariables(ctx)
		}
		if err := run.keepVariables(ctx); err != nil {
			return false, err
		}
	}
	return run.runBatch(ctx)
}

// runBatch runs one batch to its end, or as far as the call's time allows, and reports
// whether the run can continue. If the kernel does not have the Python package, it submits
// another batch that includes the package.
func (run *runner) runBatch(ctx context.Context) (more bool, err error) {
	more, err = run.tryBatch(ctx, false)
	if errors.Is(err, errPackageMissing) {
		return run.tryBatch(ctx, true)
	}
	return more, err
}

// tryBatch submits a batch, or finds the running one, and reads it.
func (run *runner) tryBatch(ctx context.Context, withPackage bool) (more bool, err error) {
	run.seen = seen{}
	var e contract.Execution
	found := run.record.InFlight != nil
	if found {
		e, err = run.findBatch(ctx)
	} else {
		e, err = run.submit(ctx, withPackage)
	}
	switch {
	case errors.Is(err, errBatchMissing):
		run.record.InFlight = nil
		return true, nil
	case errors.Is(err, errVMReplaced):
		return true, nil
	case err != nil:
		return false, err
	}
	endedBefore := found && e.Status.Finished()
	if e, err = run.follow(ctx, e); err != nil || !e.End {
		return false, err
	}
	if run.seen.packageMissing && !run.seen.marker && e.Status == contract.StatusSucceeded && !run.record.InFlight.WithPackage {
		run.record.InFlight = nil
		return true, errPackageMissing
	}
	return run.settle(e, endedBefore)
}

// settle acts on the end of a batch and reports whether the run can continue. endedBefore
// says that the batch ended before this call.
func (run *runner) settle(e contract.Execution, endedBefore bool) (more bool, err error) {
	b := run.record.InFlight
	run.record.InFlight = nil
	switch e.Status {
	case contract.StatusSucceeded:
		if run.withoutMarkers++; run.seen.marker {
			run.withoutMarkers = 0
		}
		if run.withoutMarkers > 1 {
			return false, errNoMarkers
		}
		return run.checkVariables(b), nil
	case contract.StatusLost, contract.StatusKernelDied, contract.StatusKernelRestarted, contract.StatusCancelled:
		if endedBefore {
			if run.record.Done < b.Hi {
				run.addNote("the batch of iterations %d to %d ended as %s: the iterations from %d on were not confirmed and run again", b.Lo, b.Hi-1, e.Status, run.record.Done)
			}
			return true, nil
		}
	}
	run.recordStop(e)
	return false, nil
}

// recordStop records why the run stopped.
func (run *runner) recordStop(e contract.Execution) {
	stop := &Stop{Execution: e, Refused: e.Status == contract.StatusFailed && !run.seen.marker && !run.seen.gap}
	failure := &Failure{Status: string(e.Status), Message: e.Reason}
	if m := run.seen.failed; m != nil {
		stop.Setup = m.Event == eventSetupFailed
		switch {
		case e.Status == contract.StatusTimedOut:
			run.record.addTimeout(m.Seconds, stop.Setup)
		case e.Status == contract.StatusFailed && !stop.Setup:
			stop.Iteration = &m.Done
		}
	}
	if e.Error != nil && e.Status == contract.StatusFailed {
		failure.Message = e.Error.EName + ": " + e.Error.EValue
	}
	failure.Iteration = stop.Iteration
	run.record.Status, run.record.Failure = Status(e.Status), failure
	run.out.Stop = stop
}
