package job

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// Open reads what earlier executors recorded in the journal. Their unfinished jobs ended with them.
func Open(cfg Config) *Jobs {
	js := &Jobs{cfg: cfg, log: cfg.Log.With("component", "job"), byID: map[string]*Job{}}
	executions := cfg.Journal.OfJobs()
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, id := range cfg.Journal.JobIDs() {
		js.recoverLocked(id, executions[id])
	}
	for id, of := range executions {
		js.rememberLocked(id, of)
	}
	slices.SortFunc(js.order, func(a, b *Job) int { return a.created.Compare(b.created) })
	js.opened = true
	js.trimLocked()
	return js
}

// recoverLocked reads a job's record. Lines may be missing if the journal was damaged.
func (js *Jobs) recoverLocked(id string, executions []contract.Execution) {
	j := &Job{jobs: js, state: contract.JobQueued, patches: map[string]string{}}
	record, err := js.cfg.Journal.JobRecord(id)
	for _, text := range record {
		var lines []line
		err = errors.Join(err, json.Unmarshal(text, &lines))
		for _, l := range lines {
			if !j.apply(l) {
				err = errors.Join(err, errDamaged)
			}
		}
	}
	if err != nil {
		js.log.Warn("the record of a job is damaged; what can't be read of it is not known any more", "job_id", id, "err", err)
	}
	if j.id != id {
		return
	}
	j.complete(executions)
	js.addLocked(j)
	if !j.state.Ended() {
		j.endAfterKill()
	}
}

// errDamaged means that a record has a line that does not follow from those before it.
var errDamaged = errors.New("a line is not from an executor, or follows a missing one")

// rememberLocked notes that there was a job with the id, if no record says so but executions do: code
// in the kernel can delete records. A repeated submit must not run them again.
func (js *Jobs) rememberLocked(id string, executions []contract.Execution) {
	if js.byID[id] != nil || js.forgotten(id) {
		return
	}
	first, last := executions[0], executions[len(executions)-1]
	now := time.Now().UTC()
	err := js.cfg.Journal.RememberJob(journal.PastJob{
		ID: id, State: contract.JobKernelLost, Reason: "the job's record is missing or damaged; list_executions shows what ran of it",
		KernelID: last.KernelID, Entries: last.Job.Index + 1, Created: first.CreatedAt, Finished: &now,
	})
	if err != nil {
		js.log.Error("the record of a job is missing, and no note of the job could be saved: a repeated submit would run it again", "job_id", id, "err", err)
		return
	}
	js.log.Warn("the record of a job is missing; nothing of the job runs again", "job_id", id)
}

func (js *Jobs) forgotten(id string) bool {
	_, ok := js.cfg.Journal.PastJob(id)
	return ok
}

// apply repeats what a line tells, and reports whether it makes sense.
func (j *Job) apply(l line) bool {
	if (l.JobID != "") == (j.id != "") {
		return false
	}
	switch {
	case l.JobID != "":
		return j.applyHead(l)
	case l.Index != nil && l.Execution != "":
		return j.applyBegun(*l.Index, l.Execution, l.KernelID)
	case l.Index != nil:
		return j.applyEnded(*l.Index, l.Status)
	case l.Patch != nil:
		return j.applyPatch(*l.Patch)
	case l.End != nil && l.End.State.Ended():
		j.state, j.cause, j.reason, j.finished = l.End.State, l.End.Cause, l.End.Reason, &l.End.Finished
		j.markNotRun()
		return true
	}
	return false
}

func (j *Job) applyHead(l line) bool {
	if !contract.JobIDPattern().MatchString(l.JobID) || len(l.SHA256) != 64 || l.Created == nil || len(l.Steps) > contract.MaxJobSteps {
		return false
	}
	j.id, j.sha256, j.created, j.hasLoop, j.revision = l.JobID, l.SHA256, *l.Created, l.Loop, l.Revision
	j.kernelID = l.KernelID
	maps.Copy(j.patches, l.Patches)
	j.addSteps(l.Steps)
	return true
}

func (j *Job) addSteps(ids []string) {
	for _, id := range ids {
		j.steps = append(j.steps, step{id: id, status: contract.StepWaits})
	}
}

// applyBegun notes the execution of an entry. Rounds before it whose lines are missing are lost.
func (j *Job) applyBegun(index int, executionID, kernelID string) bool {
	if index < 0 || index >= len(j.steps)+contract.MaxJobRounds {
		return false
	}
	for index > j.entries() {
		j.rounds = append(j.rounds, round{status: statusNumber(contract.StatusLost)})
	}
	if index >= len(j.steps) && index < j.entries() {
		j.rounds[index-len(j.steps)] = newRound(executionID)
	} else {
		j.setBegunLocked(index, executionID)
	}
	j.kernelID, j.next = cmp.Or(kernelID, j.kernelID), max(j.next, index+1)
	return true
}

func (j *Job) applyEnded(index int, status contract.StepStatus) bool {
	known := status == contract.StepSkipped || contract.Status(status).Finished() && slices.Contains(roundStatuses, contract.Status(status))
	if index < 0 || index >= j.entries() || !known {
		return false
	}
	if index >= len(j.steps) {
		j.rounds[index-len(j.steps)].status = statusNumber(contract.Status(status))
	} else {
		j.steps[index].status = status
	}
	j.next = max(j.next, index+1)
	return true
}

func (j *Job) applyPatch(p patchLine) bool {
	if p.At < j.next || p.At > len(j.steps) || p.At+len(p.Steps) > contract.MaxJobSteps {
		return false
	}
	j.steps = j.steps[:p.At]
	j.addSteps(p.Steps)
	j.patches[p.ID] = p.SHA256
	j.revision++
	return true
}

// complete adds what the journal knows of the job's executions, the oldest first: the job's
// last lines may be missing, because a kill or a full disk came between.
func (j *Job) complete(executions []contract.Execution) {
	status := map[string]contract.Status{}
	for _, x := range executions {
		status[x.ExecutionID] = x.Status
		index := x.Job.Index
		if !j.names(index, x.ExecutionID) && !j.state.Ended() && j.applyBegun(index, x.ExecutionID, x.KernelID) {
			j.record(line{Index: &index, Execution: x.ExecutionID, KernelID: x.KernelID})
		}
	}
	for i := range j.next {
		e := j.entryLocked(i)
		if contract.Status(e.Status).Finished() && e.Status != contract.StepWaits {
			continue
		}
		known, ok := status[e.ExecutionID]
		if !ok {
			known = contract.StatusLost
		}
		if index := i; j.applyEnded(index, contract.StepStatus(known)) {
			j.record(line{Index: &index, Status: contract.StepStatus(known)})
		}
	}
}

// names reports whether the entry has this execution.
func (j *Job) names(index int, executionID string) bool {
	if index >= j.entries() || index < 0 {
		return false
	}
	e := j.entryLocked(index)
	return e.ExecutionID == executionID || slices.Contains(e.Earlier, executionID)
}

// endAfterKill ends a job that its executor left unfinished. Nothing of it runs again.
func (j *Job) endAfterKill() {
	done := j.next == len(j.steps) && !j.hasLoop && j.next > 0
	if done && j.steps[j.next-1].status == contract.StepStatus(contract.StatusSucceeded) {
		j.endLocked(contract.JobFinished, "", "")
		return
	}
	j.endLocked(contract.JobKernelLost, "", "the executor ended before the job; its variables are gone, and nothing of the job runs again")
}

// markNotRun marks the steps that had not begun when the job ended.
func (j *Job) markNotRun() {
	for i := range j.steps {
		if j.steps[i].status == contract.StepWaits {
			j.steps[i].status = contract.StepNotRun
		}
	}
}

// transientNames are names of exceptions that usually pass by themselves, as patterns.
var transientNames = []string{
	"connection*error", "*connectionerror", "*timeout", "*timeouterror", "brokenpipeerror", "incompleteread",
	"remotedisconnected", "resourceexhausted", "serviceunavailable", "toomanyrequests", "outofmemoryerror",
}

// transientMessages match messages of exceptions with other names. A status of HTTP needs a word
// that says what the number is: "500 rows are missing" is none.
var transientMessages = []*regexp.Regexp{
	regexp.MustCompile(`(?i)CUDA out of memory|CUDA error: out of memory`),
	regexp.MustCompile(`(?i)connection reset|temporarily unavailable`),
	regexp.MustCompile(`(?i)\b(?:HTTP(?:/[0-9.]+)?(?: error| status)?(?: code)?|(?:error|status)(?:[ _]code)?)[ :=]+` + transientStatus + `\b`),
	regexp.MustCompile(`(?i)\b(?:client|server) error '?` + transientStatus + `\b`),
	regexp.MustCompile(`(?i)\b` + transientStatus + `,? (?:client error|server error|message=|too many requests|internal server error|bad gateway|service unavailable|gateway time-?out)`),
}

// transientStatus are the statuses of HTTP that usually pass by themselves.
const transientStatus = `(?:429|500|502|503|504)`

// transient reports whether an exception usually passes by itself. An interrupt never does.
func transient(ename, evalue string) bool {
	name := strings.ToLower(ename)
	if name == "keyboardinterrupt" {
		return false
	}
	return slices.ContainsFunc(transientNames, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }) ||
		slices.ContainsFunc(transientMessages, func(m *regexp.Regexp) bool { return m.MatchString(evalue) })
}

// freeGPU lets go of the last attempt's traceback, whose frames keep what they had on the GPU:
// an attempt after "CUDA out of memory" would have less memory than the one before.
var freeGPU = sync.OnceValue(func() string {
	return kernelpy.Call{Function: "cleanup.free_gpu", Delivery: kernelpy.Reply}.Code(true)
})

// retryWait is how long to wait after an attempt, which counts from 1: 1 s, 2 s, 4 s and so on,
// at most a minute, and up to a fifth more or less, so that many jobs do not retry at once.
func retryWait(attempt int) time.Duration {
	wait := min(time.Minute, time.Second<<min(attempt-1, 6))
	return time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64()))
}
