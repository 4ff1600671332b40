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

	"github.com/google/uuid"

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
	// maxKeptEntries how many steps and rounds these have together. Of older ones, journal.PastJob
	// remains.
	maxKept        = 500
	maxKeptEntries = 250_000
)

// Config says what jobs run on and where they are recorded.
type Config struct {
	Queue   *execution.Queue
	Journal *journal.Journal
	Log     *slog.Logger
	// Starting is called before an execution of a job is made, and Refused if it was not made
	// after all. Nil functions are not called.
	Starting func(caller string, s contract.Submit)
	Refused  func(requestID string)
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
	jobs    *Jobs
	id      string
	sha256  string // of its content
	caller  string
	created time.Time
	size    atomic.Int64 // see Size

	state    contract.JobState
	cause    contract.JobCause
	reason   string
	finished *time.Time
	kernelID string

	steps    []step
	loop     *contract.JobLoop // nil for none; without code after the end
	hasLoop  bool
	rounds   []round // that have begun
	next     int     // index of the first entry that has not begun
	retry    bool    // the last entry that has begun is to run again
	deleted  bool    // nothing further begins
	revision int
	patches  map[string]string // SHA-256 of the content, by patch_id

	running *journal.Record // the execution that has the kernel
	unsaved []line          // of its record
	patched int             // steps of patches since the record was written as a whole
	changed chan struct{}   // closed at the next change; nil while nobody waits for it
}

// step is a step of a job and how it ended.
type step struct {
	id        string
	name      string // of its source
	code      string // empty once it is not needed any more
	timeout   float64
	unstored  bool
	mayFail   bool
	skip      []uint16 // indexes of steps without whose success it is skipped
	attempts  int
	status    contract.StepStatus
	execution string   // the last one
	earlier   []string // executions of earlier attempts
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
	j := &Job{
		jobs: js, id: s.JobID, sha256: sum, caller: caller, created: time.Now().UTC(),
		state: contract.JobQueued, kernelID: s.KernelID, steps: steps, loop: s.Loop, hasLoop: s.Loop != nil, patches: map[string]string{},
	}
	j.measureLocked()
	if err := js.cfg.Queue.Join(caller, j); err != nil {
		return contract.Job{}, err
	}
	if err := j.recordNow(j.head()); err != nil { // Begin waits until then
		j.state = contract.JobCancelled
		js.cfg.Queue.Leave(j)
		return contract.Job{}, err
	}
	js.addLocked(j)
	return j.snapshotLocked(0), nil
}

// knownLocked returns the job that an earlier submit with the id created.
func (js *Jobs) knownLocked(id, sum string) (known contract.Job, ok bool, err error) {
	if j := js.byID[id]; j != nil {
		if j.sha256 != sum {
			return known, false, ErrOther
		}
		return j.snapshotLocked(0), true, nil
	}
	past, ok := js.cfg.Journal.PastJob(id)
	if ok && past.SHA256 != "" && past.SHA256 != sum {
		return known, false, ErrOther
	}
	return pastJob(past), ok, nil
}

// fullLocked returns why the caller can't have another job.
func (js *Jobs) fullLocked(caller string) error {
	all, own := 0, 0
	for _, j := range js.order {
		if j.state.Ended() {
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
	js.byID[j.id] = j
	js.order = append(js.order, j)
}

// Size is what the job keeps in memory of its steps that have not begun.
func (j *Job) Size() int { return int(j.size.Load()) }

// measureLocked sets the size.
func (j *Job) measureLocked() {
	size := 0
	for i := range j.steps {
		s := &j.steps[i]
		size += len(s.code) + len(s.id) + len(s.name) + 2*len(s.skip)
	}
	if j.loop != nil {
		size += len(j.loop.Code) + len(j.loop.Again)
	}
	j.size.Store(int64(size))
}

// entries is how many steps and begun rounds the job has.
func (j *Job) entries() int { return len(j.steps) + len(j.rounds) }

// trimLocked forgets the oldest finished jobs beyond the bounds. Without a tombstone a job is
// kept: its id would run the code again.
func (js *Jobs) trimLocked() {
	kept, entries, failed := 0, 0, !js.opened
	for _, j := range js.order {
		if j.state.Ended() {
			kept, entries = kept+1, entries+j.entries()
		}
	}
	js.order = slices.DeleteFunc(js.order, func(j *Job) bool {
		if failed || !j.state.Ended() || kept <= 1 || kept <= maxKept && entries <= maxKeptEntries {
			return false
		}
		if err := js.cfg.Journal.RememberJob(j.past()); err != nil {
			js.log.Error("writing a tombstone; the job is kept until that succeeds", "job_id", j.id, "err", err)
			failed = true
			return false
		}
		kept, entries = kept-1, entries-j.entries()
		delete(js.byID, j.id)
		return true
	})
}

// flushLocked writes what a full disk kept from being written.
func (js *Jobs) flushLocked() {
	for _, j := range js.order {
		_ = j.flush()
	}
}

func (j *Job) past() journal.PastJob {
	return journal.PastJob{
		ID: j.id, SHA256: j.sha256, State: j.state, Cause: j.cause, Reason: j.reason,
		KernelID: j.kernelID, Entries: j.entries(), Created: j.created, Finished: j.finished,
	}
}

// round is a round of a loop that has begun. A job may have 100,000, so it takes 17 bytes.
type round struct {
	execution uuid.UUID
	status    byte // index in roundStatuses
}

// roundStatuses are those that a round may have.
var roundStatuses = []contract.Status{
	contract.StatusRunning, contract.StatusSucceeded, contract.StatusFailed, contract.StatusTimedOut, contract.StatusInterrupted,
	contract.StatusCancelled, contract.StatusKernelDied, contract.StatusKernelRestarted, contract.StatusLost,
}

func newRound(executionID string) round {
	id, _ := uuid.Parse(executionID) // the journal's ids are UUIDs
	return round{execution: id}
}

// statusNumber is the index of a status. An unknown one counts as lost.
func statusNumber(s contract.Status) byte {
	if i := slices.Index(roundStatuses, s); i >= 0 {
		return byte(i)
	}
	return byte(len(roundStatuses) - 1)
}

func (r round) entry() contract.JobEntry {
	e := contract.JobEntry{Status: contract.StepStatus(roundStatuses[r.status])}
	if r.execution != uuid.Nil {
		e.ExecutionID = r.execution.String()
	}
	return e
}

// verdict is what follows from the end of an entry. The zero value means that the job goes on.
type verdict struct {
	state  contract.JobState // how the job ends
	cause  contract.JobCause
	reason string
	retry  bool // the step runs again
}

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
		if len(s.earlier)+1 < s.attempts && transient(o.Error.EName, o.Error.EValue) {
			return verdict{retry: true}
		}
		if s.mayFail {
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
	case len(j.rounds) >= j.loop.MaxRounds:
		return verdict{
			state: contract.JobFailed, cause: contract.CauseMaxRounds,
			reason: fmt.Sprintf("the loop's condition was still True after its last round, number %d", len(j.rounds)),
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
