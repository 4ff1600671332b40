// Package job runs jobs: ordered lists of steps, and loops after them, each step and each round
// an execution of its own, without anybody's call. A job is on disk before it is accepted, and
// no step of it runs twice: whatever ends the kernel or the executor ends the job.
//
// It must not talk to the kernel, and keeps no output: executor/execution gives a job its turns
// and tells it how its executions ended, and executor/journal keeps what they produced. Start
// reading at Jobs.Submit, then at Job.Begin and Job.Ended.
package job

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"colabrelay/executor/execution"
	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

// Errors of jobs.
var (
	ErrNotFound = errors.New("no such job")
	ErrConflict = errors.New("the job does not allow that")
	ErrOther    = errors.New("this job_id was used for a different job")
	ErrTooMany  = errors.New("too many jobs are unfinished already")
	ErrBad      = errors.New("the job is not valid")
	ErrTooLarge = errors.New("the job is too large")
)

const (
	maxUnfinished         = 64 // jobs of all callers
	maxUnfinishedOfCaller = 16
	// maxKept is how many finished jobs are kept with the list of their steps, and
	// maxKeptEntries how many steps and rounds these have together. Of older ones, a tombstone
	// remains.
	maxKept        = 500
	maxKeptEntries = 250_000
)

// Config says what jobs run on and where they are recorded.
type Config struct {
	Queue   *execution.Queue
	Journal *journal.Journal
	Log     *slog.Logger
	// Starting is called before an execution of a job is made. Nil is not called.
	Starting func(caller string, s contract.Submit)
}

// Jobs holds the jobs of one state directory.
type Jobs struct {
	cfg Config
	log *slog.Logger

	mu     sync.Mutex
	byID   map[string]*Job
	order  []*Job // the oldest first, once opened
	opened bool
}

// Job is one job. Its fields but size are guarded by the lock of its Jobs, which is the one
// under which its next step begins.
type Job struct {
	contract.Job // what is not derived when it is read; see headLocked
	jobs         *Jobs
	sha256       string // of its content
	caller       string
	size         atomic.Int64 // see Size

	steps   []step
	loop    *contract.JobLoop // nil for none, and after the end
	hasLoop bool
	entries []contract.JobEntry // of the steps, and of the rounds that have begun
	deleted bool                // nothing further begins

	running *journal.Record // the execution that has the kernel
	changed chan struct{}   // closed at the next change; nil while nobody waits for it

	recorded bool   // the journal has its record
	unsaved  []line // of its record
	heads    int    // step ids in the heads since the record was written as a whole
}

// step is what a step runs. Of a job that was read from disk, it is only its id.
type step struct {
	contract.JobStep          // without code once that is not needed any more, and without SkipIfFailed
	skip             []uint16 // indexes of the steps that SkipIfFailed names
}

// Submit accepts a job and returns its id. A job_id that was used before returns the same job
// and runs nothing.
func (js *Jobs) Submit(caller string, s contract.JobSubmit) (contract.Job, error) {
	steps, err := check(s)
	if err != nil {
		return contract.Job{}, err
	}
	sum := digest(s)
	js.mu.Lock()
	defer js.mu.Unlock()
	js.flushLocked()
	if known, ok, err := js.knownLocked(s.JobID, sum); ok || err != nil {
		return known, err
	}
	if err := js.fullLocked(caller); err != nil {
		return contract.Job{}, err
	}
	j := js.newJob()
	j.JobID, j.KernelID, j.CreatedAt = s.JobID, s.KernelID, time.Now().UTC()
	j.sha256, j.caller, j.loop, j.hasLoop = sum, caller, s.Loop, s.Loop != nil
	j.setSteps(steps)
	if err := js.cfg.Queue.Join(caller, j); err != nil {
		return contract.Job{}, err
	}
	if err := j.writeHeadLocked(); err != nil { // Begin waits until then
		j.State, j.unsaved = contract.JobCancelled, nil
		js.cfg.Queue.Leave(j)
		return contract.Job{}, err
	}
	js.addLocked(j)
	return j.snapshotLocked(0), nil
}

func (js *Jobs) newJob() *Job { return &Job{jobs: js, Job: contract.Job{State: contract.JobQueued}} }

// setSteps replaces the steps. The entries of those that have begun stay.
func (j *Job) setSteps(steps []step) {
	rounds := j.entries[len(j.steps):]
	entries := make([]contract.JobEntry, 0, len(steps)+len(rounds))
	for i := range steps {
		if i < min(j.Next, len(j.steps)) {
			entries = append(entries, j.entries[i])
		} else {
			entries = append(entries, contract.JobEntry{StepID: steps[i].StepID, Status: contract.StepWaits})
		}
	}
	j.steps, j.entries = steps, append(entries, rounds...)
	j.measureLocked()
}

// knownLocked returns the job that an earlier submit with the id created.
func (js *Jobs) knownLocked(id, sum string) (known contract.Job, ok bool, err error) {
	if j := js.byID[id]; j != nil {
		if j.sha256 != sum {
			return known, false, ErrOther
		}
		return j.snapshotLocked(0), true, nil
	}
	past, ok := js.past(id)
	if ok && past.SHA256 != "" && past.SHA256 != sum {
		return known, false, ErrOther
	}
	return pastJob(past), ok, nil
}

// fullLocked returns why the caller can't have another job.
func (js *Jobs) fullLocked(caller string) error {
	all, own := 0, 0
	for _, j := range js.order {
		if j.State.Ended() {
			continue
		}
		all++
		if j.caller == caller {
			own++
		}
	}
	switch {
	case own >= maxUnfinishedOfCaller:
		return fmt.Errorf("%w: this relay has %d", ErrTooMany, own)
	case all >= maxUnfinished:
		return fmt.Errorf("%w: all relays together have %d", ErrTooMany, all)
	}
	return nil
}

func (js *Jobs) addLocked(j *Job) {
	js.byID[j.JobID] = j
	js.order = append(js.order, j)
}

// Size is what the job keeps in memory of its steps that have not begun.
func (j *Job) Size() int { return int(j.size.Load()) }

// sizeOf is the size of a job with these steps.
func sizeOf(steps []step, loop *contract.JobLoop) (size int) {
	for i := range steps {
		s := &steps[i]
		size += len(s.Code) + len(s.StepID) + len(s.SourceName) + 2*len(s.skip)
	}
	if loop != nil {
		size += len(loop.Code) + len(loop.Again)
	}
	return size
}

// measureLocked sets the size.
func (j *Job) measureLocked() { j.size.Store(int64(sizeOf(j.steps, j.loop))) }

// trimLocked forgets the oldest finished jobs beyond the bounds. Without a tombstone a job is
// kept: its id would run the code again.
func (js *Jobs) trimLocked() {
	kept, entries, failed := 0, 0, !js.opened
	for _, j := range js.order {
		if j.State.Ended() {
			kept, entries = kept+1, entries+len(j.entries)
		}
	}
	js.order = slices.DeleteFunc(js.order, func(j *Job) bool {
		if failed || !j.State.Ended() || kept <= 1 || kept <= maxKept && entries <= maxKeptEntries {
			return false
		}
		if err := js.cfg.Journal.RememberJob(j.JobID, j.tombstone()); err != nil {
			js.log.Error("writing a tombstone; the job is kept until that succeeds", "job_id", j.JobID, "err", err)
			failed = true
			return false
		}
		kept, entries = kept-1, entries-len(j.entries)
		delete(js.byID, j.JobID)
		return true
	})
}

// flushLocked writes what a full disk kept from being written.
func (js *Jobs) flushLocked() {
	for _, j := range js.order {
		_ = j.flushLocked() // which was reported, and is tried again
	}
}

// tombstone is what is kept of a job that is forgotten.
func (j *Job) tombstone() head {
	x := j.Job
	x.Entries, x.Next, x.Reason = len(j.entries), len(j.entries), journal.Shorten(x.Reason, maxPastReason)
	return head{Job: x, SHA256: j.sha256}
}

// past reads the tombstone of a job, if it has one.
func (js *Jobs) past(id string) (h head, ok bool) {
	ok = js.cfg.Journal.PastJob(id, &h)
	return h, ok
}

// verdict is what follows from the end of an entry. The zero value means that the job goes on.
type verdict struct {
	state  contract.JobState // how the job ends
	cause  contract.JobCause
	reason string
	retry  bool // the step runs again
}

// rounds is how many rounds have begun.
func (j *Job) rounds() int { return len(j.entries) - len(j.steps) }

// Values of a loop's Again.
const (
	again    = "True"
	finished = "False"
)

// judgeLocked decides how the job goes on after an entry. A request to end it comes before
// whatever the code returned, because code can catch an interrupt and answer True.
func (j *Job) judgeLocked(index int, o execution.Outcome) verdict {
	name := j.nameOf(index)
	run := fmt.Sprintf("%s (run %s)", name, o.ExecutionID)
	switch {
	case lifeEnded(o):
		return verdict{state: contract.JobKernelLost, reason: fmt.Sprintf("the kernel ended under %s: %s", run, o.Reason)}
	case j.deleted:
		return verdict{state: contract.JobCancelled, cause: contract.CauseDeleted, reason: fmt.Sprintf("it was deleted while %s ran", run)}
	case o.InterruptAsked:
		return verdict{state: contract.JobCancelled, cause: contract.CauseInterrupted, reason: run + " was interrupted on request"}
	}
	switch o.Status {
	case contract.StatusSucceeded:
		if index < len(j.steps) {
			return verdict{}
		}
		return j.judgeRoundLocked(run, o.Again)
	case contract.StatusTimedOut:
		return verdict{state: contract.JobFailed, cause: contract.CauseStepTimedOut, reason: fmt.Sprintf("%s: %s", run, o.Reason)}
	}
	if raised := o.Status == contract.StatusFailed && o.Error != nil; raised && index < len(j.steps) {
		s := &j.steps[index]
		if len(j.entries[index].Earlier)+1 < s.Attempts && transient(o.Error.EName, o.Error.EValue) {
			return verdict{retry: true}
		}
		if s.MayFail {
			return verdict{}
		}
	}
	return verdict{state: contract.JobFailed, cause: contract.CauseStepFailed, reason: fmt.Sprintf("%s did not succeed: %s", run, whyOf(o))}
}

// lifeEnded reports whether the kernel or the executor ended with the execution.
func lifeEnded(o execution.Outcome) bool {
	switch o.Status {
	case contract.StatusKernelDied, contract.StatusKernelRestarted, contract.StatusLost, contract.StatusCancelled:
		return true
	case contract.StatusInterrupted:
		return !o.InterruptAsked // the executor shuts down
	}
	return false
}

// judgeRoundLocked decides by the value of Again after a round.
func (j *Job) judgeRoundLocked(run, value string) verdict {
	switch {
	case value == finished:
		return verdict{state: contract.JobFinished}
	case value != again:
		return verdict{
			state: contract.JobFailed, cause: contract.CauseAgainUnknown,
			reason: fmt.Sprintf("the loop's condition was neither True nor False after %s", run),
		}
	case j.rounds() >= j.loop.MaxRounds:
		return verdict{
			state: contract.JobFailed, cause: contract.CauseMaxRounds,
			reason: fmt.Sprintf("the loop's condition was still True after its last round, number %d", j.rounds()),
		}
	}
	return verdict{}
}

// whyOf says for people why an execution failed.
func whyOf(o execution.Outcome) string {
	if o.Error == nil {
		return string(o.Status) + ": " + o.Reason
	}
	return journal.Shorten(o.Error.EName+": "+o.Error.EValue, maxReason/2)
}
