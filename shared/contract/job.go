package contract

import (
	"time"

	"colabrelay/shared/lazy"
)

// Limits of jobs. The code that waits, of executions and jobs together, has its own bound in
// the executor.
const (
	MaxJobCode     = 7 << 20 // bytes of code in one job: one body takes it
	MaxJobSteps    = 2000
	MaxJobRounds   = 100_000
	MaxJobAttempts = 10  // of one step
	MaxJobEntries  = 500 // in one answer
	MaxJobIDLen    = 64
	MaxStepIDLen   = 64
	MaxKernelIDLen = 128
	MaxSourceName  = 200 // bytes of JobStep.SourceName
)

var (
	// JobIDPattern is the form of JobSubmit.JobID. It is random, because it is in paths.
	JobIDPattern = lazy.Regexp(`^[A-Za-z0-9-]{1,64}$`)
	// StepIDPattern is the form of JobStep.StepID.
	StepIDPattern = lazy.Regexp(`^[A-Za-z0-9._-]{1,64}$`)
)

// JobState is what a job does, or how it ended.
type JobState string

// States of a job.
const (
	JobQueued     JobState = "queued"  // nothing of it has begun
	JobRunning    JobState = "running" // a step runs, or is the next of this job when it has its turn
	JobWaiting    JobState = "waiting" // Cause says for what
	JobFinished   JobState = "finished"
	JobFailed     JobState = "failed"      // a step did not succeed, or the loop could not go on
	JobKernelLost JobState = "kernel_lost" // the kernel or the executor ended; nothing of the job runs in another kernel
	JobCancelled  JobState = "cancelled"   // deleted, or a step was interrupted on request
)

// Ended reports whether the state is final.
func (s JobState) Ended() bool {
	switch s {
	case JobQueued, JobRunning, JobWaiting:
		return false
	}
	return true
}

// JobCause is why a job waits or ended, for programs. It is empty for queued, running, finished
// and kernel_lost.
type JobCause string

// Causes.
const (
	CauseInput        JobCause = "input"         // waiting: the code asks for input
	CauseLowMemory    JobCause = "low_memory"    // waiting until memory is free
	CauseDiskFull     JobCause = "disk_full"     // waiting until the disk has room
	CauseRetry        JobCause = "retry"         // waiting before the next attempt of a step
	CauseStepFailed   JobCause = "step_failed"   // failed
	CauseStepTimedOut JobCause = "timed_out"     // failed
	CauseAgainUnknown JobCause = "again_unknown" // failed: the loop's Again was neither True nor False
	CauseMaxRounds    JobCause = "max_rounds"    // failed: Again was still True after the last round
	CauseInterrupted  JobCause = "interrupted"   // cancelled
	CauseDeleted      JobCause = "deleted"       // cancelled
)

// JobSubmit is the body of POST PathJobs: an ordered list of steps, and a loop after them. The
// executor runs them by itself, each as an execution of its own, to the end or to the first
// one that does not succeed.
type JobSubmit struct {
	// JobID makes submitting idempotent: the same one returns the same job. Other content
	// under the same one is a conflict.
	JobID string `json:"job_id"`
	// KernelID is the only kernel in which the job may run. If that one has ended, the job ends as
	// JobKernelLost and nothing of it runs. An empty one stands for the kernel that runs when the
	// first entry begins.
	KernelID string    `json:"kernel_id,omitempty"`
	Steps    []JobStep `json:"steps,omitempty"`
	Loop     *JobLoop  `json:"loop,omitempty"`
}

// JobStep is one execution of a job.
type JobStep struct {
	StepID         string  `json:"step_id"` // unique in the job
	Code           string  `json:"code"`
	SourceName     string  `json:"source_name,omitempty"`     // of its execution, for lists of runs
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"` // as in Submit
	Unstored       bool    `json:"unstored,omitempty"`        // as in Submit
	// MayFail lets the job go on after an exception. Interrupts, timeouts and the end of the
	// kernel always end it.
	MayFail bool `json:"may_fail,omitempty"`
	// SkipIfFailed names earlier steps. The step is skipped if one of them failed or was skipped.
	SkipIfFailed []string `json:"skip_if_failed,omitempty"`
	// Attempts is how often the step may run: again only after an exception that usually
	// passes by itself, such as a lost connection. 0 means 1, at most MaxJobAttempts.
	Attempts int `json:"attempts,omitempty"`
}

// JobLoop is code that runs again and again, each time in an execution of its own.
type JobLoop struct {
	Code           string  `json:"code"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"` // of one round
	Unstored       bool    `json:"unstored,omitempty"`
	// Again is an expression that is evaluated after each round. True continues, False
	// finishes the job, and anything else, such as an exception, fails it.
	Again     string `json:"again"`
	MaxRounds int    `json:"max_rounds"` // 1 to MaxJobRounds
}

// JobPatch is the body of PATCH PathJob. It replaces the steps from From to the end, none of
// which may have begun, by Steps. An empty From adds Steps at the end. The loop stays, and must
// not have begun. A repeated one is a conflict: the job's revision shows that it has arrived.
type JobPatch struct {
	Revision int       `json:"revision"` // that of the job that the patch changes; another one is a conflict
	From     string    `json:"from,omitempty"`
	Steps    []JobStep `json:"steps"`
}

// StepStatus is that of an entry: the Status of its last execution, or one of these. It is a final
// one when the job has decided what follows from it.
type StepStatus string

// Statuses of entries that have no execution.
const (
	StepWaits   StepStatus = "waits" // it has not begun
	StepSkipped StepStatus = "skipped"
	StepNotRun  StepStatus = "not_run" // the job ended before it began
)

// Job is a job as it is now.
type Job struct {
	JobID      string     `json:"job_id"`
	State      JobState   `json:"state"`
	Cause      JobCause   `json:"cause,omitempty"`
	Reason     string     `json:"reason"`     // why it waits or ended, for people
	Revision   int        `json:"revision"`   // counts patches
	StepCount  int        `json:"step_count"` // entries before the loop's rounds
	Entries    int        `json:"entries"`    // steps, and rounds that have begun
	Next       int        `json:"next"`       // index of the first entry that has not begun
	KernelID   string     `json:"kernel_id"`  // that of JobSubmit, or empty until something has begun
	CreatedAt  time.Time  `json:"created_at"`
	FinishedAt *time.Time `json:"finished_at"`
	Behind     *Behind    `json:"behind,omitempty"` // who has the kernel while the job waits for its turn
	From       int        `json:"from"`             // index of the first of Steps
	// Steps are entries that have begun or were skipped, and after the end also those that did
	// not run: at most MaxJobEntries, none in a list.
	Steps []JobEntry `json:"steps"`
}

// JobEntry is a step or a round of a job.
type JobEntry struct {
	StepID      string     `json:"step_id,omitempty"` // empty for a round
	ExecutionID string     `json:"execution_id"`      // empty if it has not begun or was skipped
	Status      StepStatus `json:"status"`
	Earlier     []string   `json:"earlier,omitempty"`    // executions of its earlier attempts
	WillRetry   bool       `json:"will_retry,omitempty"` // it has failed and runs again
}

// JobRef says to which entry of a job an execution belongs.
type JobRef struct {
	JobID string `json:"job_id"`
	Index int    `json:"index"`
}
