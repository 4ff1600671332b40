package job

import (
	"fmt"

	"colabrelay/executor/execution"
	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

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
