package job

import (
	"cmp"
	"encoding/json"
	"errors"
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
	slices.SortFunc(js.order, func(a, b *Job) int { return a.CreatedAt.Compare(b.CreatedAt) })
	js.opened = true
	js.trimLocked()
	return js
}

// recoverLocked reads a job's record. Lines may be missing if the journal was damaged.
func (js *Jobs) recoverLocked(id string, executions []contract.Execution) {
	j := js.newJob()
	j.recorded = true
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
	if j.JobID != id {
		return
	}
	for _, i := range j.complete(executions) {
		j.unsaved = append(j.unsaved, j.entryLine(i))
	}
	js.addLocked(j)
	if !j.State.Ended() {
		j.endAfterKill()
	}
	if err := j.flushLocked(); err != nil {
		js.log.Error("writing what is known of a job after a kill", "job_id", id, "err", err)
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

// apply takes in a line, and reports whether it makes sense.
func (j *Job) apply(l line) bool {
	if l.Head != nil {
		return j.applyHead(l.Head)
	}
	return l.Entry != nil && j.JobID != "" && j.applyEntry(l.Index, *l.Entry)
}

func (j *Job) applyHead(h *head) bool {
	if !contract.JobIDPattern().MatchString(h.JobID) || j.JobID != "" && j.JobID != h.JobID || len(h.SHA256) != 64 ||
		len(h.StepIDs) > contract.MaxJobSteps || len(h.StepIDs) < min(j.Next, len(j.steps)) {
		return false
	}
	h.Next = j.Next
	j.Job, j.sha256, j.hasLoop = h.Job, h.SHA256, h.Loop
	steps := make([]step, len(h.StepIDs))
	for i, id := range h.StepIDs {
		steps[i].StepID = id
	}
	j.setSteps(steps)
	if j.State.Ended() {
		j.settle()
	}
	return true
}

func (j *Job) applyEntry(index int, e contract.JobEntry) bool {
	if index < 0 || index >= len(j.steps)+contract.MaxJobRounds || index < len(j.steps) && e.StepID != j.steps[index].StepID {
		return false
	}
	*j.entry(index) = e
	j.Next = max(j.Next, index+1)
	return true
}

// complete adds what the journal knows of the job's executions, the oldest first: the job's
// last lines may be missing, because a kill or a full disk came between. It returns the entries to
// which there was something to add.
func (j *Job) complete(executions []contract.Execution) (added []int) {
	status := map[string]contract.Status{}
	for _, x := range executions {
		status[x.ExecutionID] = x.Status
		if i := x.Job.Index; i >= 0 && i < len(j.steps)+contract.MaxJobRounds && !j.names(i, x.ExecutionID) && !j.State.Ended() {
			j.beginEntry(i, x.ExecutionID)
			j.KernelID, j.Next = cmp.Or(j.KernelID, x.KernelID), max(j.Next, i+1)
		}
	}
	for i := range j.entries[:j.Next] {
		e := &j.entries[i]
		if contract.Status(e.Status).Finished() || e.Status == contract.StepSkipped {
			continue
		}
		e.Status, added = contract.StepStatus(contract.StatusLost), append(added, i)
		if known, ok := status[e.ExecutionID]; ok {
			e.Status = contract.StepStatus(known)
		}
	}
	return added
}

// names reports whether the entry has this execution.
func (j *Job) names(index int, executionID string) bool {
	return index < len(j.entries) && (j.entries[index].ExecutionID == executionID || slices.Contains(j.entries[index].Earlier, executionID))
}

// endAfterKill ends a job that its executor left unfinished. Nothing of it runs again.
func (j *Job) endAfterKill() {
	done := j.Next == len(j.steps) && !j.hasLoop && j.Next > 0
	if done && j.entries[j.Next-1].Status == contract.StepStatus(contract.StatusSucceeded) {
		j.endLocked(contract.JobFinished, "", "")
		return
	}
	j.endLocked(contract.JobKernelLost, "", "the executor ended before the job; its variables are gone, and nothing of the job runs again")
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
