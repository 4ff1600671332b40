package chunked

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"colabrelay/relay/jobs"
	"colabrelay/relay/kernelstate"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// Options of Advance.
type Options struct {
	Until time.Time // when to return; the job continues on the VM
	Live  bool      // read rounds while they run, because a person or model watches, not only at their ends
	// Output receives what the setup and the rounds printed and displayed, without markers, in
	// order. It may be nil.
	Output func(executionID string, events []contract.Event)
	// Progress is called after each marker of finished iterations. It may be nil.
	Progress func(r *Record)
	// Keeper fetches the copies of variables that iterations pass on, within Keep. With nil,
	// none is fetched.
	Keeper *kernelstate.Keeper
	Keep   Keep
}

// Outcome is the result of a call to Advance.
type Outcome struct {
	Stop  *Stop              // why the run stopped; nil if it finished or goes on
	Batch contract.Execution // the execution that was read last, without events
	Job   contract.Job       // as last read
	Notes []string           // what else happened
}

// Stop describes what stopped a run. Record.Failure has its iteration and variables.
type Stop struct {
	Execution contract.Execution // empty if none failed
	Refused   bool               // the code has a syntax error: nothing ran
	Asks      bool               // OnStop answers
	Reason    string             // of a job that ended without a failed execution
}

const (
	// minTimeLeft is the least time left of a call in which another job is worth submitting.
	minTimeLeft = 250 * time.Millisecond
	// maxJobs bounds the jobs that one call submits.
	maxJobs = 5
)

// runner carries out one call of Advance.
type runner struct {
	*Run
	vm  VM
	opt Options
	out Outcome

	jobs    int   // submitted by this call
	reached int64 // in the old kernel, until it is noted which iterations run again
	marked  bool  // the job had a marker, or a gap, which may have had one
	alive   bool  // the job had not ended when this call read it
	failed  contract.Execution
	copyDue bool // a copy is to be fetched now
}

// Advance follows the run's job, or submits one, until the run finishes or stops, or the time is
// over. A job whose kernel was lost during this call stops the run, because the iteration may be
// the cause. If the kernel was lost between two calls, a note says so, and the run goes on in the
// new one.
//
// An error means that a request failed or that the record could not be saved. In any case
// another call continues the run.
func (r *Run) Advance(ctx context.Context, vm VM, o Options) (Outcome, error) {
	if r.record.Status == StatusFinished {
		if r.spec.OnStop != Ask {
			r.addNote("the run has finished, so on_stop has no effect: on_change=\"restart\" runs it again from iteration 0")
		}
		return Outcome{Notes: r.notes}, nil
	}
	run := &runner{Run: r, vm: vm, opt: o}
	// An answer is for what the last job asked, or for the iteration that failed in it.
	asked := r.record.Answer != Ask || r.record.Status.asks() || r.record.Failure != nil && r.record.Failure.Iteration != nil
	if r.spec.OnStop != Ask && r.record.Job == nil && asked {
		r.record.Answer = r.spec.OnStop
	}
	err := run.loop(ctx)
	run.out.Notes = r.notes
	if !r.saved.IsZero() {
		err = errors.Join(err, r.save())
	}
	return run.out, err
}

// loop goes on until the run finishes or stops or the call's time is over.
func (run *runner) loop(ctx context.Context) error {
	run.stopAbandoned(ctx)
	if run.record.Restarted && run.saved.IsZero() {
		run.dropCopies() // of the run that this one replaces
	}
	for more := true; more; {
		r := run.record
		if r.Job == nil && (r.Ending || r.Remaining() == 0 && r.Failure == nil) {
			r.finish()
			if err := run.save(); err != nil { // before the copies go
				return err
			}
			run.dropCopies()
			return nil
		}
		var err error
		switch {
		case r.Job == nil:
			more, err = run.begin(ctx)
		case !r.Job.Accepted && !r.Superseded:
			more, err = run.submit(ctx)
		case r.Superseded && !r.Job.Ended():
			if err = r.Job.Stop(ctx, run.vm, false); err == nil { // its round ends by itself
				more, err = run.follow(ctx)
			}
		default:
			more, err = run.follow(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stopAbandoned ends the job of a run that was replaced, with the iteration that runs.
func (run *runner) stopAbandoned(ctx context.Context) {
	old := run.record.Abandoned
	if old == nil {
		return
	}
	ended := old.Ended()
	if old.Stop(ctx, run.vm, true) != nil {
		return // the next call tries again; until then, the kernel runs it
	}
	run.record.Abandoned = nil
	if !ended {
		run.addNote("the job of the replaced run was stopped")
	}
}

// begin records the next job and submits it.
func (run *runner) begin(ctx context.Context) (more bool, err error) {
	r := run.record
	switch {
	case run.jobs > 0 && time.Until(run.opt.Until) < minTimeLeft:
		return false, nil
	case run.jobs >= maxJobs:
		return false, errors.New("several jobs in a row ended before the run was finished: perhaps the display publisher of the kernel was replaced, or its messages are lost")
	}
	if run.vm.InstanceID() == "" { // any signed answer names it
		if _, err := run.vm.List(ctx, 1); err != nil {
			return false, err
		}
	}
	instance := run.vm.InstanceID()
	place, ready, err := run.place(ctx, instance)
	if err != nil || !ready {
		return false, err
	}
	if r.Superseded && r.Done > 0 && r.Done < r.N {
		run.addNote("the run continues at iteration %d with the new arguments; the iterations before it still count", r.Done)
	}
	r.Placed, r.Status, r.Failure, r.Superseded = place, StatusRunning, nil, false
	t := jobs.New(instance, run.content())
	r.Job = &t
	return run.submit(ctx)
}

// submit submits the recorded job, for the first time or again.
func (run *runner) submit(ctx context.Context) (more bool, err error) {
	r := run.record
	first := run.jobs == 0
	run.jobs++
	run.marked, run.failed = false, contract.Execution{}
	err = r.Job.Submit(ctx, run.vm, run.save)
	switch {
	case err == nil:
		run.look()
		return true, nil
	case errors.Is(err, jobs.ErrReplaced) && first && run.vm.InstanceID() != r.Job.InstanceID:
		if r.Job.MayRun {
			run.noteReplaced()
		}
		r.Job = nil
		return true, nil // the answer named the new VM, so the next attempt reaches it
	case !r.Job.MayRun:
		r.Job = nil
	}
	return false, err
}

// roundTime is how long the iterations of a round should take together. A round ends at about
// that time, whatever its size, so that what it left is recorded often.
const roundTime = 10 * time.Second

// The deadline of a round, and of the setup, is slowFactor times the slowest one up to now, and
// at least minDeadline.
const (
	minDeadline = time.Hour
	slowFactor  = 10
)

// order is the argument of chunked.run.prepare in shared/kernelpy.
type order struct {
	Key         string    `json:"key"`
	Setup       string    `json:"setup"`
	Loop        string    `json:"loop"`
	SetupSHA256 string    `json:"setup_sha256"`
	Replaces    string    `json:"replaces"` // the key of a run whose copies the VM deletes
	N           int64     `json:"n"`
	BatchSize   int64     `json:"batch_size"`
	Seconds     float64   `json:"seconds"`
	Done        int64     `json:"done"`    // Record.Recorded
	Marked      int64     `json:"marked"`  // Record.Done
	Carried     []string  `json:"carried"` // null if no round has ended
	Independent bool      `json:"independent"`
	OnStop      OnStop    `json:"on_stop"`
	Copy        *Copy     `json:"copy"`
	Keep        keepOrder `json:"keep"`
}

// keepOrder bounds what a job spends on copies.
type keepOrder struct {
	Every float64 `json:"every"` // seconds
	Share float64 `json:"share"`
	Bytes int64   `json:"bytes"`
}

// content is the next job: the preparation, and rounds until the kernel says that nothing is left
// to do.
func (run *runner) content() contract.JobSubmit {
	r, b := run.record, run.opt.Keep
	title := func(part string) string { return fmt.Sprintf("# chunked run %q: %s\n", run.spec.Name, part) }
	prepare := kernelpy.Call{Function: "chunked.run.prepare", MIME: markerMIME, Delivery: kernelpy.Display, Arguments: []any{order{
		Key: r.Key, Setup: r.Setup, Loop: r.Loop, SetupSHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(r.Setup))),
		Replaces: r.Replaces, N: r.N, BatchSize: r.BatchSize, Seconds: roundTime.Seconds(),
		Done: r.Recorded, Marked: r.Done, Carried: r.Carried, Independent: r.Independent, OnStop: r.Answer, Copy: r.Placed,
		Keep: keepOrder{Every: b.Every.Seconds(), Share: b.Percent / 100, Bytes: b.MaxBytes},
	}}}
	round := kernelpy.Call{Function: "chunked.run.round", MIME: markerMIME, Delivery: kernelpy.Display, Arguments: []any{r.Key}}
	return contract.JobSubmit{
		Steps: []contract.JobStep{{StepID: "prepare", Code: title("setup of "+strconv.FormatInt(r.N, 10)+" iterations") + prepare.Code(true), TimeoutSeconds: r.deadline(), Unstored: true}},
		Loop: &contract.JobLoop{
			Code: title("round") + round.Code(false), TimeoutSeconds: r.deadline(), Unstored: true,
			Again: again(r.Key), MaxRounds: contract.MaxJobRounds,
		},
	}
}

// again is an expression for whether the run has iterations left to do in this kernel. It uses
// no name that the user's code may have shadowed. It takes the answer of the round away: a round
// that gave none, because an iteration removed our package, fails the job instead of repeating.
func again(key string) string {
	return fmt.Sprintf(`(0 for _ in ()).gi_frame.f_builtins["__import__"]("sys").modules["colab_relay_runs"].__dict__["runs"][%q].pop("again")`, key)
}

// deadline is that of the next job's rounds, in seconds.
func (r *Record) deadline() float64 {
	return min(max(minDeadline.Seconds(), slowFactor*r.SlowestSeconds), contract.MaxTimeout.Seconds())
}
