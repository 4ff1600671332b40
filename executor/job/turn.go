package job

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"colabrelay/executor/execution"
	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

// waitTime is how long a job waits before it looks again for memory or room on the disk.
const waitTime = time.Second

// Begin returns the execution of the next step or round. The step begins under the lock under
// which a patch replaces it.
func (j *Job) Begin(kernelID string) execution.Turn {
	j.jobs.mu.Lock()
	defer j.jobs.mu.Unlock()
	switch {
	case j.state.Ended():
		return execution.Turn{}
	case j.kernelID != "" && j.kernelID != kernelID:
		j.endLocked(contract.JobKernelLost, "", "its kernel has ended; its variables are gone")
		return execution.Turn{}
	}
	if err := j.jobs.cfg.Queue.LowMemory(); err != nil {
		return j.waitLocked(contract.CauseLowMemory, err.Error())
	}
	if err := j.ready(); err != nil {
		return j.waitLocked(contract.CauseDiskFull, err.Error())
	}
	if !j.retry {
		j.skipLocked() // a patch may have changed what comes next
	}
	if j.state.Ended() {
		return execution.Turn{}
	}
	return j.beginLocked(kernelID)
}

// waitLocked has the job wait for memory or room.
func (j *Job) waitLocked(cause contract.JobCause, reason string) execution.Turn {
	j.setLocked(contract.JobWaiting, cause, reason)
	return execution.Turn{Next: execution.Next{Wanted: true, After: waitTime}}
}

func (j *Job) beginLocked(kernelID string) execution.Turn {
	index := j.next
	if j.retry {
		index--
	}
	s, again := j.submitLocked(index)
	if j.jobs.cfg.Starting != nil {
		j.jobs.cfg.Starting(j.caller, s)
	}
	record, err := j.jobs.cfg.Journal.Create(s)
	if err != nil {
		if j.jobs.cfg.Refused != nil {
			j.jobs.cfg.Refused(s.RequestID)
		}
		if errors.Is(err, journal.ErrDiskFull) {
			return j.waitLocked(contract.CauseDiskFull, "the VM's disk is full: delete files there, which code run here can still do")
		}
		j.endLocked(contract.JobFailed, contract.CauseStepFailed, fmt.Sprintf("%s could not be recorded, so it did not run: %v", j.nameOf(index), err))
		return execution.Turn{}
	}
	before := ""
	if j.retry {
		before = freeGPU()
	}
	begun := line{Index: &index, Execution: record.ID}
	if j.kernelID == "" {
		begun.KernelID = kernelID
	}
	j.kernelID, j.running, j.retry, j.next = kernelID, record, false, index+1
	j.setBegunLocked(index, record.ID)
	j.record(begun)
	j.setLocked(contract.JobRunning, "", "")
	return execution.Turn{Record: record, Code: s.Code, Before: before, Again: again}
}

// submitLocked is what the entry runs. The code of its last attempt is not kept.
func (j *Job) submitLocked(index int) (s contract.Submit, again string) {
	s = contract.Submit{RequestID: rand.Text(), Job: &contract.JobRef{JobID: j.id, Index: index}}
	if index >= len(j.steps) {
		s.Code, s.TimeoutSeconds, s.Unstored = j.loop.Code, j.loop.TimeoutSeconds, j.loop.Unstored
		return s, j.loop.Again
	}
	step := &j.steps[index]
	s.Code, s.SourceName, s.TimeoutSeconds, s.Unstored = step.code, step.name, step.timeout, step.unstored
	return s, ""
}

// setBegunLocked notes the execution of an entry.
func (j *Job) setBegunLocked(index int, executionID string) {
	if index >= len(j.steps) {
		j.rounds = append(j.rounds, newRound(executionID))
		return
	}
	s := &j.steps[index]
	if s.execution != "" {
		s.earlier = append(s.earlier, s.execution)
	}
	s.execution, s.status = executionID, contract.StepStatus(contract.StatusRunning)
	if len(s.earlier)+1 >= s.attempts {
		s.code = ""
		j.measureLocked()
	}
}

// Ended settles the entry whose execution has ended, and says whether the job goes on.
func (j *Job) Ended(o execution.Outcome) execution.Next {
	j.jobs.mu.Lock()
	defer j.jobs.mu.Unlock()
	j.running = nil
	index := j.next - 1
	j.setEndedLocked(index, o.Status)
	v := j.judgeLocked(index, o)
	switch {
	case v.state != "":
		j.endLocked(v.state, v.cause, v.reason)
	case v.retry:
		return j.retryLocked(index, o)
	default:
		j.skipLocked()
		j.wakeLocked()
	}
	return execution.Next{Wanted: !j.state.Ended()}
}

// setEndedLocked notes how an entry's execution ended.
func (j *Job) setEndedLocked(index int, status contract.Status) {
	if index >= len(j.steps) {
		j.rounds[index-len(j.steps)].status = statusNumber(status)
	} else {
		j.steps[index].status = contract.StepStatus(status)
	}
	j.record(line{Index: &index, Status: contract.StepStatus(status)})
}

// retryLocked has the step run again after a while.
func (j *Job) retryLocked(index int, o execution.Outcome) execution.Next {
	attempt := len(j.steps[index].earlier) + 1
	wait := retryWait(attempt)
	j.retry = true
	j.setLocked(contract.JobWaiting, contract.CauseRetry, fmt.Sprintf(
		"attempt %d of %d of %s raised %s and is repeated after %.1f s; what it did before stays",
		attempt, j.steps[index].attempts, j.nameOf(index), journal.Shorten(o.Error.EName, maxName), wait.Seconds()))
	return execution.Next{Wanted: true, After: wait}
}

// skipLocked skips the steps whose turn it is and that need one that did not succeed, and
// finishes a job of which nothing is left.
func (j *Job) skipLocked() {
	for ; j.next < len(j.steps) && j.lacksLocked(j.next); j.next++ {
		s, index := &j.steps[j.next], j.next
		s.status, s.code = contract.StepSkipped, ""
		j.record(line{Index: &index, Status: contract.StepSkipped})
	}
	if j.next == len(j.steps) && j.loop == nil {
		j.endLocked(contract.JobFinished, "", "")
		return
	}
	j.measureLocked()
}

// lacksLocked reports whether a step named in the step's skip_if_failed did not succeed.
func (j *Job) lacksLocked(index int) bool {
	for _, before := range j.steps[index].skip {
		if j.steps[before].status != contract.StepStatus(contract.StatusSucceeded) {
			return true
		}
	}
	return false
}

// Changed wakes the readers: the running execution began or ended to wait for input.
func (j *Job) Changed() {
	j.jobs.mu.Lock()
	defer j.jobs.mu.Unlock()
	j.wakeLocked()
}

// Lost ends the job with its kernel.
func (j *Job) Lost(reason string) {
	j.jobs.mu.Lock()
	defer j.jobs.mu.Unlock()
	j.endLocked(contract.JobKernelLost, "", reason)
}

// endLocked ends the job, unless it has ended.
func (j *Job) endLocked(state contract.JobState, cause contract.JobCause, reason string) {
	if j.state.Ended() {
		return
	}
	now := time.Now().UTC()
	j.state, j.cause, j.reason, j.finished = state, cause, journal.Shorten(reason, maxReason), &now
	for i := range j.steps {
		j.steps[i].code, j.steps[i].name, j.steps[i].skip = "", "", nil
	}
	j.markNotRun()
	j.loop = nil
	j.measureLocked()
	j.record(line{End: j.endLine()})
	j.wakeLocked()
	j.jobs.trimLocked()
}

// setLocked changes the state of a job that has not ended.
func (j *Job) setLocked(state contract.JobState, cause contract.JobCause, reason string) {
	j.state, j.cause, j.reason = state, cause, journal.Shorten(reason, maxReason)
	j.wakeLocked()
}

func (j *Job) wakeLocked() {
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// nameOf is an entry for people.
func (j *Job) nameOf(index int) string {
	if index >= len(j.steps) {
		return fmt.Sprintf("round %d", index-len(j.steps)+1)
	}
	return fmt.Sprintf("step %s", j.steps[index].id)
}

// Bounds of texts in a job's answer, in bytes.
const (
	maxReason = 1 << 10
	maxName   = 100
)
