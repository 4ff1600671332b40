package job

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

const (
	// maxHeads bounds the step ids in the heads that patches add to a record.
	maxHeads = 50_000
	// maxLines bounds the lines that are saved together, as a line of the journal.
	maxLines = 1_000
)

// line is a line of a job's record: what the job is, or one of its entries. The last one of each counts.
type line struct {
	Head  *head              `json:"job,omitempty"`
	Index int                `json:"i,omitempty"`
	Entry *contract.JobEntry `json:"entry,omitempty"`
}

// head is a job without its entries.
type head struct {
	contract.Job
	SHA256  string   `json:"sha256"`
	StepIDs []string `json:"step_ids"`
	Loop    bool     `json:"loop"`
}

func (j *Job) headLine() line {
	h := head{Job: j.Job, SHA256: j.sha256, Loop: j.hasLoop}
	for i := range j.steps {
		h.StepIDs = append(h.StepIDs, j.steps[i].StepID)
	}
	return line{Head: &h}
}

func (j *Job) entryLine(index int) line {
	e := j.entries[index]
	return line{Index: index, Entry: &e}
}

// writeEntryLocked adds an entry to the record. If that fails, the executions name their job too, so
// that an executor which is started after a kill finds what ran.
func (j *Job) writeEntryLocked(index int) { _ = j.writeLocked(j.entryLine(index)) }

// writeHeadLocked adds the head to the record, or writes that anew.
func (j *Job) writeHeadLocked() error {
	if j.heads += len(j.steps); j.heads > maxHeads && j.rounds() == 0 {
		j.recorded, j.heads, j.unsaved = false, 0, nil
		for i := range j.Next {
			j.unsaved = append(j.unsaved, j.entryLine(i))
		}
		j.unsaved = append([]line{j.headLine()}, j.unsaved...)
		return j.flushLocked()
	}
	return j.writeLocked(j.headLine())
}

// writeLocked adds a line to the record, now or as soon as the disk can take it.
func (j *Job) writeLocked(l line) error {
	late := len(j.unsaved) > 0
	j.unsaved = append(j.unsaved, l)
	err := j.flushLocked()
	if err != nil && !late {
		j.jobs.log.Error("the record of a job could not be saved; saving is retried", "job_id", j.JobID, "err", err)
	}
	return err
}

// flushLocked saves the lines that wait in memory. They are few: without room for them there is none
// for the state of another execution. The error is journal.ErrDiskFull if there is no room.
func (j *Job) flushLocked() error {
	for len(j.unsaved) > 0 {
		n := min(len(j.unsaved), maxLines)
		if !j.recorded { // what replaces the record before it is one line
			n = len(j.unsaved)
		}
		err := j.jobs.cfg.Journal.RecordJob(j.JobID, !j.recorded, j.unsaved[:n])
		switch {
		case errors.Is(err, journal.ErrDiskFull):
			return err
		case err != nil:
			return fmt.Errorf("writing the record of a job: %w", err)
		}
		j.recorded, j.unsaved = true, j.unsaved[n:]
	}
	j.unsaved = nil
	return nil
}

// digest identifies the content of a job or a patch.
func digest(v any) string {
	raw, _ := json.Marshal(v) // has only texts and numbers, which check has seen
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBad, fmt.Sprintf(format, args...))
}

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTooLarge, fmt.Sprintf(format, args...))
}

// check checks a job against the contract's bounds, and returns its steps.
func check(s contract.JobSubmit) ([]step, error) {
	if !contract.JobIDPattern().MatchString(s.JobID) {
		return nil, bad("job_id: must be 1 to %d characters of A-Z a-z 0-9 -", contract.MaxJobIDLen)
	}
	if len(s.KernelID) > contract.MaxKernelIDLen {
		return nil, bad("kernel_id: must have at most %d bytes", contract.MaxKernelIDLen)
	}
	if len(s.Steps) == 0 && s.Loop == nil {
		return nil, bad("it has neither steps nor a loop")
	}
	steps, err := plan(nil, s.Steps)
	if err == nil && s.Loop != nil {
		err = checkLoop(*s.Loop)
	}
	if err != nil {
		return nil, err
	}
	return steps, checkSize(steps, s.Loop)
}

// checkSize checks the size of the code that has not run yet.
func checkSize(steps []step, loop *contract.JobLoop) error {
	size := 0
	for i := range steps {
		size += len(steps[i].Code)
	}
	if loop != nil {
		size += len(loop.Code)
	}
	if size > contract.MaxJobCode {
		return tooLarge("%.2f MiB of code, and at most %d MiB are accepted", float64(size)/(1<<20), contract.MaxJobCode>>20)
	}
	return nil
}

// plan returns the steps before, which stay, and after them those of added.
func plan(before []step, added []contract.JobStep) ([]step, error) {
	if n := len(before) + len(added); n > contract.MaxJobSteps {
		return nil, tooLarge("%d steps, and at most %d are accepted", n, contract.MaxJobSteps)
	}
	steps := append(make([]step, 0, len(before)+len(added)), before...)
	index := make(map[string]uint16, cap(steps))
	for i := range steps {
		index[steps[i].StepID] = uint16(i)
	}
	for i, s := range added {
		if err := checkStep(s); err != nil {
			return nil, bad("steps[%d].%v", i, err)
		}
		if _, twice := index[s.StepID]; twice {
			return nil, bad("steps[%d].step_id: an earlier step has the same one", i)
		}
		made := step{JobStep: s}
		made.Attempts, made.SkipIfFailed = max(1, s.Attempts), nil
		for _, name := range s.SkipIfFailed {
			at, ok := index[name]
			if !ok {
				return nil, bad("steps[%d].skip_if_failed: no earlier step has the id that it names", i)
			}
			made.skip = append(made.skip, at)
		}
		index[s.StepID] = uint16(len(steps))
		steps = append(steps, made)
	}
	return steps, nil
}

// checkStep names the wrong field.
func checkStep(s contract.JobStep) error {
	if !contract.StepIDPattern().MatchString(s.StepID) {
		return fmt.Errorf("step_id: must be 1 to %d characters of A-Z a-z 0-9 . _ -", contract.MaxStepIDLen)
	}
	if len(s.SourceName) > contract.MaxSourceName {
		return fmt.Errorf("source_name: must have at most %d bytes", contract.MaxSourceName)
	}
	if s.Attempts < 0 || s.Attempts > contract.MaxJobAttempts {
		return fmt.Errorf("attempts: must be a number from 0 to %d", contract.MaxJobAttempts)
	}
	return checkCode(s.Code, s.TimeoutSeconds)
}

func checkCode(code string, timeout float64) error {
	if strings.TrimSpace(code) == "" {
		return fmt.Errorf("code: must not be empty")
	}
	if strings.ContainsRune(code, 0) {
		return fmt.Errorf("code: contains a NUL character, which Python does not accept")
	}
	if !(timeout >= 0 && timeout <= contract.MaxTimeout.Seconds()) {
		return fmt.Errorf("timeout_seconds: must be a number from 0 to %g", contract.MaxTimeout.Seconds())
	}
	return nil
}

func checkLoop(l contract.JobLoop) error {
	switch {
	case strings.TrimSpace(l.Again) == "":
		return bad("loop.again: must not be empty")
	case len(l.Again) > maxAgain:
		return bad("loop.again: must have at most %d bytes", maxAgain)
	case strings.ContainsRune(l.Again, 0):
		return bad("loop.again: contains a NUL character, which Python does not accept")
	case l.MaxRounds < 1 || l.MaxRounds > contract.MaxJobRounds:
		return bad("loop.max_rounds: must be a number from 1 to %d", contract.MaxJobRounds)
	}
	if err := checkCode(l.Code, l.TimeoutSeconds); err != nil {
		return bad("loop.%v", err)
	}
	return nil
}

// maxAgain bounds a loop's Again, in bytes.
const maxAgain = 4 << 10

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
	if _, err := js.findLocked(id); err == nil {
		return
	}
	first, last := executions[0], executions[len(executions)-1]
	now := time.Now().UTC()
	entries := last.Job.Index + 1
	err := js.cfg.Journal.RememberJob(id, head{Job: contract.Job{
		JobID: id, State: contract.JobKernelLost, Reason: "the job's record is missing or damaged; list_executions shows what ran of it",
		KernelID: last.KernelID, Entries: entries, Next: entries, CreatedAt: first.CreatedAt, FinishedAt: &now,
	}})
	if err != nil {
		js.log.Error("the record of a job is missing, and no note of the job could be saved: a repeated submit would run it again", "job_id", id, "err", err)
		return
	}
	js.log.Warn("the record of a job is missing; nothing of the job runs again", "job_id", id)
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
