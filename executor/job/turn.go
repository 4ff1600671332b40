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
	case j.State.Ended():
		return execution.Turn{}
	case j.KernelID != "" && j.KernelID != kernelID:
		j.endLocked(contract.JobKernelLost, "", "its kernel has ended; its variables are gone")
		return execution.Turn{}
	}
	if err := j.jobs.cfg.Queue.LowMemory(); err != nil {
		return j.waitLocked(contract.CauseLowMemory, err.Error())
	}
	if !j.retries() {
		j.skipLocked() // a patch may have changed what comes next
	}
	if j.State.Ended() {
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
	retry := j.retries()
	index := j.Next
	if retry {
		index--
	}
	s, again := j.submitLocked(index)
	if j.jobs.cfg.Starting != nil {
		j.jobs.cfg.Starting(j.caller, s)
	}
	record, err := j.jobs.cfg.Journal.Create(s)
	if err != nil {
		if errors.Is(err, journal.ErrDiskFull) {
			return j.waitLocked(contract.CauseDiskFull, "the VM's disk is full: delete files there, which code run here can still do")
		}
		j.endLocked(contract.JobFailed, contract.CauseStepFailed, fmt.Sprintf("%s could not be recorded, so it did not run: %v", j.nameOf(index), err))
		return execution.Turn{}
	}
	before := ""
	if retry {
		before = freeGPU()
	}
	bound := j.KernelID != ""
	j.KernelID, j.running, j.Next = kernelID, record, index+1
	j.State, j.Cause, j.Reason = contract.JobRunning, "", ""
	j.beginEntry(index, record.ID)
	if index < len(j.steps) && len(j.entries[index].Earlier)+1 >= j.steps[index].Attempts {
		j.steps[index].Code = "" // its last attempt
	}
	if !bound {
		_ = j.writeHeadLocked()
	}
	j.writeEntryLocked(index)
	j.wakeLocked()
	return execution.Turn{Record: record, Code: s.Code, Before: before, Again: again}
}

// submitLocked is what the entry runs. The code of its last attempt is not kept.
func (j *Job) submitLocked(index int) (s contract.Submit, again string) {
	s = contract.Submit{RequestID: rand.Text(), Job: &contract.JobRef{JobID: j.JobID, Index: index}}
	if index >= len(j.steps) {
		s.Code, s.TimeoutSeconds, s.Unstored = j.loop.Code, j.loop.TimeoutSeconds, j.loop.Unstored
		return s, j.loop.Again
	}
	step := &j.steps[index]
	s.Code, s.SourceName, s.TimeoutSeconds, s.Unstored = step.Code, step.SourceName, step.TimeoutSeconds, step.Unstored
	return s, ""
}

// beginEntry notes the execution of an entry: another one of a step, or a new round.
func (j *Job) beginEntry(index int, executionID string) {
	e := j.entry(index)
	if e.ExecutionID != "" {
		e.Earlier = append(e.Earlier, e.ExecutionID)
	}
	e.ExecutionID, e.Status, e.WillRetry = executionID, contract.StepStatus(contract.StatusRunning), false
}

// entry returns an entry, which may be a round that has not begun. Of rounds before that, nothing is known.
func (j *Job) entry(index int) *contract.JobEntry {
	for len(j.entries) < index {
		j.entries = append(j.entries, contract.JobEntry{Status: contract.StepStatus(contract.StatusLost)})
	}
	if len(j.entries) == index {
		j.entries = append(j.entries, contract.JobEntry{})
	}
	return &j.entries[index]
}

// retries reports whether the last entry that has begun is to run again.
func (j *Job) retries() bool { return j.Next > 0 && j.entries[j.Next-1].WillRetry }

// Ended settles the entry whose execution has ended, and says whether the job goes on.
func (j *Job) Ended(o execution.Outcome) execution.Next {
	j.jobs.mu.Lock()
	defer j.jobs.mu.Unlock()
	index := j.Next - 1
	v := j.judgeLocked(index, o)
	j.running = nil
	j.entries[index].Status, j.entries[index].WillRetry = contract.StepStatus(o.Status), v.retry
	j.writeEntryLocked(index)
	switch {
	case v.state != "":
		j.endLocked(v.state, v.cause, v.reason)
	case v.retry:
		return j.retryLocked(index, o)
	default:
		j.skipLocked()
		j.wakeLocked()
	}
	return execution.Next{Wanted: !j.State.Ended()}
}

// retryLocked has the step run again after a while.
func (j *Job) retryLocked(index int, o execution.Outcome) execution.Next {
	attempt := len(j.entries[index].Earlier) + 1
	wait := retryWait(attempt)
	j.setLocked(contract.JobWaiting, contract.CauseRetry, fmt.Sprintf(
		"attempt %d of %d of %s raised %s and is repeated after %.1f s; what it did before stays",
		attempt, j.steps[index].Attempts, j.nameOf(index), journal.Shorten(o.Error.EName, maxName), wait.Seconds()))
	return execution.Next{Wanted: true, After: wait}
}

// skipLocked skips the steps whose turn it is and that need one that did not succeed, and
// finishes a job of which nothing is left.
func (j *Job) skipLocked() {
	for j.Next < len(j.steps) && j.lacksLocked(j.Next) {
		j.entries[j.Next].Status, j.steps[j.Next].Code = contract.StepSkipped, ""
		j.Next++
		j.writeEntryLocked(j.Next - 1)
	}
	if j.Next == len(j.steps) && j.loop == nil {
		j.endLocked(contract.JobFinished, "", "")
		return
	}
	j.measureLocked()
}

// lacksLocked reports whether a step named in the step's skip_if_failed did not succeed.
func (j *Job) lacksLocked(index int) bool {
	for _, before := range j.steps[index].skip {
		if j.entries[before].Status != contract.StepStatus(contract.StatusSucceeded) {
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
	if j.State.Ended() {
		return
	}
	now := time.Now().UTC()
	j.State, j.Cause, j.Reason, j.FinishedAt = state, cause, journal.Shorten(reason, maxReason), &now
	for i := range j.steps {
		j.steps[i] = step{JobStep: contract.JobStep{StepID: j.steps[i].StepID}}
	}
	j.settle()
	j.loop = nil
	j.measureLocked()
	_ = j.writeHeadLocked()
	j.wakeLocked()
	j.jobs.trimLocked()
}

// settle notes what the end of the job means for its entries: nothing begins any more.
func (j *Job) settle() {
	for i := range j.entries {
		if e := &j.entries[i]; e.Status == contract.StepWaits {
			e.Status = contract.StepNotRun
		} else {
			e.WillRetry = false
		}
	}
}

// setLocked changes the state of a job that has not ended.
func (j *Job) setLocked(state contract.JobState, cause contract.JobCause, reason string) {
	j.State, j.Cause, j.Reason = state, cause, journal.Shorten(reason, maxReason)
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
	return fmt.Sprintf("step %s", j.steps[index].StepID)
}

// Bounds of texts in a job's answer, in bytes.
const (
	maxReason     = 1 << 10
	maxPastReason = 200 // of one that is forgotten
	maxName       = 100
)
