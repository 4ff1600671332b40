package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

const (
	// leastTime is the least time left of a call in which another request is worth it.
	leastTime = 250 * time.Millisecond
	// pause is how long Follow waits before it asks again for what an executor tells only when
	// asked: whether an entry that failed runs again, and that memory or disk space is free again.
	pause     = 100 * time.Millisecond
	longPause = 2 * time.Second
)

// Entry is a step or a round of a job, in one of its attempts.
type Entry struct {
	Index  int
	StepID string              // empty for a round
	Status contract.StepStatus // of Done: how it ended
	// Forgotten reports that the VM has deleted the execution with its output.
	Forgotten bool
	Earlier   []string // of Done: executions of its earlier attempts
}

// FollowOptions say what to do with what a job did.
type FollowOptions struct {
	Until time.Time // when to return; the job continues on the VM
	// Visit gets each answer about the execution of an entry, with its new events, and reports
	// whether to read on. The ticket is already past these events.
	Visit func(e Entry, x contract.Execution) (more bool)
	// Done is called once for each entry: after its execution was read to its end, or when it was
	// skipped, or did not run because the job ended before. x is the execution without events,
	// and zero if there was none. It reports whether to read on.
	Done func(e Entry, x contract.Execution) (more bool)
	// BehindInput waits on while another run waits for input before this job's next entry.
	BehindInput bool
	MaxBytes    int64                // of one answer; 0 leaves it to the executor
	Spacing     func() time.Duration // as in client.FollowOptions
}

// Follow reads what the job did since the ticket was last brought forward: the entries in
// order, each execution from its first event that was not read. It returns at the end of the
// job, when the time is over, when Visit or Done says so, or when the job waits for somebody:
// an answer to input(), or another run that waits for one. The answer is the job as last read,
// without entries. ErrReplaced and ErrUnknown mean that nothing more can be read.
func (t *Ticket) Follow(ctx context.Context, vm VM, o FollowOptions) (contract.Job, error) {
	f := &follower{Ticket: t, vm: vm, o: o}
	for more := true; more; {
		err := f.look(ctx)
		if err == nil {
			more, err = f.take(ctx)
		}
		if err != nil {
			return f.job, t.meaning(vm, err)
		}
	}
	return f.job, nil
}

// follower is one call of Follow.
type follower struct {
	*Ticket
	vm    VM
	o     FollowOptions
	job   contract.Job        // as last read, without entries
	steps []contract.JobEntry // of the job, from the ticket's entry on
	last  contract.Execution  // of the current entry, as last read
	asked bool                // the job was read in this call
	taken int                 // entries of which this call has read something
}

// left is how much time the call has.
func (f *follower) left() time.Duration { return time.Until(f.o.Until) }

// look reads the job. It waits until the ticket's entry begins, unless this is the first look.
func (f *follower) look(ctx context.Context) error {
	wait := time.Duration(0)
	if f.asked {
		wait = max(0, min(f.left(), contract.MaxWait))
	}
	j, err := f.vm.Job(ctx, f.JobID, f.Entry, wait)
	if err != nil {
		return err
	}
	f.asked = true
	tooMany := func(e contract.JobEntry) bool { return len(e.Earlier) >= contract.MaxJobAttempts }
	if len(j.Steps) > contract.MaxJobEntries || slices.ContainsFunc(j.Steps, tooMany) { // a call holds them while it reads
		return fmt.Errorf("%w: it lists more entries or attempts than a job has", ErrAnswer)
	}
	if err := f.see(j); err != nil {
		return err
	}
	f.steps, j.Steps = j.Steps, nil
	f.job, f.Accepted, f.Unsent = j, true, nil
	switch {
	case j.From != f.Entry && len(f.steps) > 0:
		return fmt.Errorf("%w: entries from %d were asked for, and it has them from %d", ErrAnswer, f.Entry, j.From)
	case len(f.steps) > j.Entries-f.Entry:
		return fmt.Errorf("%w: it lists more entries than it says it has", ErrAnswer)
	case len(f.steps) == 0 && j.State.Ended() && j.Entries > f.Entry:
		return ErrUnknown
	}
	return nil
}

// take takes in the entries that were listed, and reports whether to look again. An entry ends as its
// execution did; the job's word counts only if there is none to read.
func (f *follower) take(ctx context.Context) (more bool, err error) {
	for len(f.steps) > 0 {
		e := f.steps[0]
		if f.taken > 0 && f.left() <= 0 {
			return false, nil
		}
		f.taken++
		if more, err = f.read(ctx, e); !more || err != nil {
			return false, err
		}
		isFinal := f.Read == contract.StatusSucceeded || !e.WillRetry && contract.Status(e.Status).Finished()
		if !isFinal {
			return true, f.rest(ctx, pause)
		}
		switch {
		case f.Read != "":
			e.Status = contract.StepStatus(f.Read)
		case e.ExecutionID == "" && e.Status != contract.StepSkipped && e.Status != contract.StepNotRun:
			e.Status = contract.StepStatus(contract.StatusLost)
		}
		if !f.next(e) {
			return false, nil
		}
	}
	return f.goesOn(ctx)
}

// owns refuses an answer about an execution that is not the one that is read, or not of the current
// entry, in the job's kernel. So no execution counts for two entries, jobs or kernels.
func (f *follower) owns(x contract.Execution) error {
	isOfEntry := x.Job != nil && x.Job.JobID == f.JobID && x.Job.Index == f.Entry
	otherKernel := x.KernelID != "" && f.KernelID != "" && x.KernelID != f.KernelID
	if x.ExecutionID != f.Execution || !isOfEntry || otherKernel {
		return fmt.Errorf("%w: the execution of entry %d is that of another entry, job or kernel", ErrAnswer, f.Entry)
	}
	return nil
}

// next reports the end of an entry and goes on to the next one.
func (f *follower) next(e contract.JobEntry) (more bool) {
	entry := Entry{Index: f.Entry, StepID: e.StepID, Status: e.Status, Forgotten: e.ExecutionID != "" && f.last.ExecutionID == "", Earlier: e.Earlier}
	last := f.last
	switch s := contract.Status(e.Status); e.Status {
	case contract.StepSkipped, contract.StepNotRun, contract.StepStatus(contract.StatusSucceeded):
	default:
		f.Failed = s
	}
	f.Entry, f.Execution, f.Offset, f.Read, f.last, f.steps = f.Entry+1, "", 0, "", contract.Execution{}, f.steps[1:]
	return f.o.Done == nil || f.o.Done(entry, last)
}

// goesOn reports whether to look at the job again, when all that it listed was read.
func (f *follower) goesOn(ctx context.Context) (bool, error) {
	switch {
	case f.job.State.Ended():
		return f.Entry < f.job.Entries, nil
	case f.left() < leastTime:
		return false, nil
	case !f.o.BehindInput && client.WaitsForInput(f.job.Behind) != nil:
		return false, nil
	case f.job.State == contract.JobWaiting && f.job.Cause != contract.CauseInput: // such a job is answered at once
		return true, f.rest(ctx, longPause)
	}
	return true, nil
}

// read reads the execution of an entry, as far as it exists and the time allows.
func (f *follower) read(ctx context.Context, e contract.JobEntry) (more bool, err error) {
	if e.ExecutionID == "" || f.last.End && f.last.ExecutionID == e.ExecutionID {
		return true, nil
	}
	if f.Execution != e.ExecutionID && f.Read != contract.StatusSucceeded { // the first one, or another attempt
		f.Execution, f.Offset, f.Read, f.last = e.ExecutionID, 0, "", contract.Execution{}
	}
	stopped := false
	entry := Entry{Index: f.Entry, StepID: e.StepID, Status: e.Status}
	var wrong error
	x, err := client.Follow(ctx, f.vm, contract.Execution{ExecutionID: f.Execution}, client.FollowOptions{
		From: f.Offset, Until: f.o.Until, MaxBytes: f.o.MaxBytes, Instance: f.InstanceID, Spacing: f.o.Spacing,
		Visit: func(x contract.Execution) bool {
			if wrong = f.owns(x); wrong != nil {
				return false
			}
			f.Offset = x.NextOffset
			stopped = f.o.Visit != nil && !f.o.Visit(entry, x)
			return !stopped
		},
	})
	switch {
	case wrong != nil:
		return false, wrong
	case f.isForgotten(err):
		return true, nil
	case err != nil:
		return false, err
	}
	if x.End { // what was read before stands
		f.Read = cmp.Or(f.Read, x.Status)
		x.Status = f.Read
	}
	f.last = x
	return !stopped && x.End, nil
}

// isForgotten reports whether the VM has deleted an execution of its own.
func (f *follower) isForgotten(err error) bool {
	refused, ok := errors.AsType[*contract.Error](err)
	return ok && refused.Code == contract.CodeNotFound && f.vm.InstanceID() == f.InstanceID
}

// rest waits for a moment.
func (f *follower) rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(0, min(d, f.left())))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
