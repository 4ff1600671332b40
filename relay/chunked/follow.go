package chunked

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"colabrelay/relay/jobs"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

const (
	// While a round runs, reads are between minPause and maxPause apart. Each request counts
	// against the tunnel's monthly limit. If nobody watches, a round is read at its end.
	maxPause = 4 * time.Second
	minPause = 300 * time.Millisecond
	// saveEvery is how often a call saves what it has read: a reader of the file sees it, and a
	// relay that is killed reads only the rest again.
	saveEvery = 5 * time.Second
)

// follow reads the job: to its end, until the call's time is over, until it waits for input, or
// until a copy of variables is to be fetched. It reports whether the run can continue.
func (run *runner) follow(ctx context.Context) (more bool, err error) {
	t := run.record.Job
	job, err := t.Follow(ctx, run.vm, jobs.FollowOptions{
		Until: run.opt.Until, MaxBytes: contract.MaxReadBytes, Spacing: run.spacing,
		Visit: func(e jobs.Entry, x contract.Execution) bool { run.visit(x); return true },
		Done:  run.done,
	})
	run.out.Job = job
	switch {
	case jobs.IsGone(err):
		if errors.Is(err, jobs.ErrReplaced) {
			run.noteReplaced()
		} else if t.Accepted {
			run.addNote("the VM no longer knows the run's job: the kernel's own record says which iterations ran, and values that were not read are lost")
		}
		run.record.Job, run.record.Answer = nil, Ask
		return true, nil
	case err != nil:
		return false, err
	case run.copyDue:
		run.fetch(ctx)
		return time.Until(run.opt.Until) > 0, nil
	case !t.Ended() || job.Entries > t.Entry:
		return false, nil
	}
	return run.settle()
}

// noteReplaced says that iterations may have run on a VM that is gone.
func (run *runner) noteReplaced() {
	run.addNote("another VM answers, and the run continues there; what the old one did after %s is not known", run.record.lastConfirmed())
}

// done is called after each step and round.
func (run *runner) done(e jobs.Entry, x contract.Execution) (more bool) {
	run.look()
	if e.Forgotten {
		run.addNote("to free disk space, the VM deleted the output of a round before this computer had read it: the values of that round are lost")
	}
	if s := contract.Status(e.Status); s.Finished() && s != contract.StatusSucceeded {
		run.failed = x
		run.failed.Status = s
	}
	if time.Since(run.saved) > saveEvery && run.save() != nil {
		return false // Advance tries once more, and reports it
	}
	run.copyDue = run.isCopyDue()
	return !run.copyDue
}

// look notes, at each answer, whether this call saw the job alive.
func (run *runner) look() { run.alive = run.alive || !run.record.Job.Ended() }

// visit applies the markers of an answer and passes its other events to Output.
func (run *runner) visit(x contract.Execution) {
	run.look()
	r := run.record
	if x.KernelID != "" { // a queued one has none
		r.KernelID = x.KernelID
	}
	output := x.Events[:0:0]
	for _, ev := range x.Events {
		switch {
		case IsMarker(ev):
			run.applyMarker(ev)
			continue
		case kernelpy.IsMissing(ev.Data):
			continue
		case ev.Type == contract.EventGap:
			run.marked = true
			run.addNote("part of a round's output is missing, because it is more than the VM keeps of one execution")
		case ev.Type == contract.EventStream:
			r.addOutput(ev.Text)
		}
		output = append(output, ev)
	}
	run.out.Batch = x
	run.out.Batch.Events = nil
	if run.opt.Output != nil && len(output) > 0 {
		run.opt.Output(x.ExecutionID, output)
	}
}

// spacing is how long to wait before the next read of a round: until about its end.
func (run *runner) spacing() time.Duration {
	r := run.record
	rest := minPause // the setup, or the first iteration
	if r.Timed > 0 {
		left := min(r.Remaining(), max(1, r.BatchSize-(r.Done-r.Recorded)))
		rest = time.Duration(min(float64(left)*r.PaceSeconds, roundTime.Seconds()) * float64(time.Second))
	}
	if run.opt.Live {
		rest = min(rest, maxPause)
	}
	return max(min(rest, time.Until(run.opt.Until)), minPause)
}

// settle acts on the end of the job and reports whether the run can continue.
func (run *runner) settle() (more bool, err error) {
	r := run.record
	t := r.Job
	if t.State == contract.JobFinished && t.Failed != "" {
		return false, fmt.Errorf("%w: it reports the job as finished, although a round ended as %.20q", jobs.ErrAnswer, t.Failed)
	}
	r.Job, r.Answer = nil, Ask
	isOver := t.State == contract.JobFinished || t.State == contract.JobKernelLost ||
		t.Failed == contract.StatusInterrupted // when all iterations had ended
	switch {
	case r.Ending && !isOver: // not what it reported
		r.Ending = false
	case r.Ending:
		if t.State == contract.JobKernelLost {
			run.addNote("the kernel ended just after it had reported the end of the run")
		}
		return true, nil
	case r.Superseded:
		r.Failure = nil
		return true, nil
	case t.State == contract.JobFinished && r.Failure != nil && Status(r.Failure.Status).asks():
		return run.ask(), nil
	case t.State == contract.JobFinished, t.Failed == "" && (t.Cause == contract.CauseMaxRounds || t.Cause == contract.CauseAgainUnknown):
		return true, nil
	case t.State == contract.JobKernelLost && !run.alive:
		run.addNote("the kernel was lost between two calls; the run continues in a new one, after %s", r.lastConfirmed())
		r.Failure = nil
		return true, nil
	}
	run.recordStop(t)
	return false, nil
}

// lastConfirmed says up to where the record has confirmed iterations.
func (r *Record) lastConfirmed() string {
	if r.Done == 0 {
		return "the start, before any iteration was confirmed"
	}
	return fmt.Sprintf("iteration %d, the last one confirmed", r.Done-1)
}

// ask records a stop that OnStop answers, and reports whether there is another copy to try.
func (run *runner) ask() (more bool) {
	r := run.record
	reason := Status(r.Failure.Status)
	if reason == StatusVariablesLost && r.OnVM != nil && r.Placed != nil && r.OnVM.Path == r.Placed.Path && r.Kept != nil {
		r.OnVM = nil // the VM has lost the file
		r.Failure = nil
		return true
	}
	r.Status = reason
	r.Failure.Message = map[Status]string{
		StatusVariablesLost:    "the kernel no longer has " + List(r.Failure.Variables),
		StatusVariablesChanged: "other code changed " + List(r.Failure.Variables),
		StatusIncomplete:       fmt.Sprintf("iteration %d did not end, and may have changed %s", r.Done, List(r.Failure.Variables)),
	}[reason]
	run.out.Stop = &Stop{Asks: true}
	return false
}

// recordStop records why the job did not end the run.
func (run *runner) recordStop(t *jobs.Ticket) {
	r, x := run.record, run.failed
	stop := &Stop{Execution: x, Reason: t.Reason, Refused: x.Status == contract.StatusFailed && !run.marked}
	status := cmp.Or(x.Status, t.Failed)
	switch {
	case t.Cause == contract.CauseDeleted:
		status, stop.Execution = contract.StatusCancelled, contract.Execution{}
	case t.State == contract.JobKernelLost && status == "": // between two rounds; Reason says how
		status = contract.StatusKernelDied
	case status == "":
		status = contract.StatusFailed
	}
	if r.Failure == nil {
		r.Failure = &Failure{}
	}
	r.Status, r.Failure.Status, r.Failure.Message = Status(status), string(status), t.Reason
	if x.Error != nil && x.Status == contract.StatusFailed {
		r.Failure.Message = clip(x.Error.EName + ": " + x.Error.EValue)
	}
	run.out.Stop = stop
}

// Peek returns the record as it would be after reading how far the run is on the VM now. It
// changes nothing, and skips what the last rounds do not say: values and output of earlier ones.
func Peek(ctx context.Context, vm VM, recorded *Record, until time.Time) (*Record, error) {
	if recorded.Job == nil || recorded.Status == StatusFinished {
		return recorded, nil
	}
	r, t := *recorded, *recorded.Job
	r.Job = &t
	if r.Failure != nil {
		failure := *r.Failure
		r.Failure = &failure
	}
	r.Results = r.Results[:len(r.Results):len(r.Results)]
	job, err := vm.Job(ctx, t.JobID, t.Entry, 0)
	if err != nil {
		return recorded, err
	}
	if last := job.Next - 2; last > t.Entry && last < job.Entries {
		t.Entry, t.Execution, t.Offset = last, "", 0
	}
	run := &runner{Run: &Run{record: &r, saved: time.Now().Add(time.Hour)}, vm: vm, opt: Options{Until: until}}
	_, err = t.Follow(ctx, vm, jobs.FollowOptions{
		Until: until, MaxBytes: contract.MaxReadBytes, Spacing: func() time.Duration { return minPause },
		Visit: func(e jobs.Entry, x contract.Execution) bool { run.visit(x); return e.Status != "running" },
		Done:  run.done,
	})
	switch {
	case err != nil:
		return recorded, err
	case !t.Ended() || job.Entries > t.Entry:
	case r.Ending:
		r.finish()
	case t.State != contract.JobFinished:
		run.recordStop(&t)
	case r.Failure != nil && Status(r.Failure.Status).asks():
		run.ask()
	}
	return &r, nil
}
