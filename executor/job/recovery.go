package job

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
	"colabrelay/shared/kernelpy"
)

// Open reads what earlier executors left in cfg.Dir. Their unfinished jobs ended with them.
func Open(cfg Config) (*Jobs, error) {
	js := &Jobs{cfg: cfg, log: cfg.Log.With("component", "job"), byID: map[string]*Job{}}
	if found, err := os.Lstat(cfg.Dir); err == nil && !found.IsDir() {
		kept, err := keep.Aside(cfg.Dir)
		js.log.Warn("what stood in the place of the folder of jobs is kept under another name; earlier jobs are lost", "kept", kept, "err", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the jobs: %w", err)
	}
	names, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of the jobs: %w", err)
	}
	executions := cfg.Journal.OfJobs()
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, name := range names {
		if filepath.Ext(name.Name()) == fileSuffix {
			js.recoverLocked(filepath.Join(cfg.Dir, name.Name()), executions)
		} else if strings.HasSuffix(name.Name(), fileSuffix+".new") {
			os.Remove(filepath.Join(cfg.Dir, name.Name())) // of a rewrite that a kill cut off
		}
	}
	for id, of := range executions {
		js.rememberLocked(id, of)
	}
	slices.SortFunc(js.order, func(a, b *Job) int { return a.created.Compare(b.created) })
	js.opened = true
	js.trimLocked()
	return js, nil
}

var (
	// errDamaged means that a file has bytes that no executor wrote.
	errDamaged = errors.New("the file is damaged")
	// errNothing means that a kill came before the first line was complete: the submit was
	// never answered, and nothing ran.
	errNothing = errors.New("the file has no complete line")
)

// headBegins is how the first line of a file begins.
const headBegins = `{"job_id":`

// recoverLocked reads a job's file. A damaged one is renamed, and a new one gets what can be
// read.
func (js *Jobs) recoverLocked(path string, executions map[string][]contract.Execution) {
	j := &Job{jobs: js, state: contract.JobQueued, patches: map[string]string{}, file: &file{path: path, log: js.log}}
	err := j.load()
	if errors.Is(err, errNothing) {
		os.Remove(path)
		return
	}
	if err == nil && (js.byID[j.id] != nil || js.forgotten(j.id)) {
		if js.byID[j.id] == nil { // a kill came between its tombstone and the deletion
			os.Remove(path)
			return
		}
		err = fmt.Errorf("%w: another file has the same job", errDamaged)
	}
	if err != nil {
		kept, moved := keep.Aside(path)
		js.log.Warn("the record of a job is damaged and kept under another name; what can't be read of it is not known any more",
			"path", path, "kept", kept, "err", errors.Join(err, moved))
		if j.id == "" || js.byID[j.id] != nil {
			return
		}
	}
	added := j.complete(executions[j.id])
	js.addLocked(j)
	if !j.state.Ended() {
		j.endAfterKill()
	}
	if err != nil || added {
		if failed := j.rewriteLocked(); failed != nil {
			js.log.Error("writing what is known of a job after a kill", "path", path, "err", failed)
		}
	}
}

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

// load reads the file. With errDamaged, the job has what could be read.
func (j *Job) load() error {
	f, err := bounded.OpenFile(j.file.path, os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	damaged := 0
	for whole := int64(0); ; {
		text, size, err := bounded.ReadLine(lines, maxLine)
		switch {
		case errors.Is(err, io.EOF) && size > 0 && j.isTorn(text):
			if err := f.Truncate(whole); err != nil {
				return err
			}
			size = 0
		case errors.Is(err, io.EOF) && size > 0:
			damaged++
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case err == nil && !j.apply(text):
			damaged++
		}
		if whole += size; errors.Is(err, io.EOF) {
			break
		}
	}
	switch {
	case damaged > 0:
		return fmt.Errorf("%w: %d of its lines are not from an executor, or follow a missing one", errDamaged, damaged)
	case j.id == "":
		return errNothing
	}
	return nil
}

// isTorn reports whether text can be the beginning of the file's next line that a kill has torn.
// Lines are JSON objects, which have no control characters.
func (j *Job) isTorn(text []byte) bool {
	begins := "{"
	if j.id == "" {
		begins = headBegins
	}
	n := min(len(text), len(begins))
	return n > 0 && string(text[:n]) == begins[:n] && !slices.ContainsFunc(text, func(b byte) bool { return b < ' ' })
}

// apply repeats what a line tells, and reports whether it makes sense.
func (j *Job) apply(text []byte) bool {
	var l line
	if json.Unmarshal(text, &l) != nil || (l.JobID != "") == (j.id != "") {
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
// last lines may be missing, because a kill or a full disk came between. It reports whether there
// was something to add.
func (j *Job) complete(executions []contract.Execution) (added bool) {
	status := map[string]contract.Status{}
	for _, x := range executions {
		status[x.ExecutionID] = x.Status
		if !j.names(x.Job.Index, x.ExecutionID) && !j.state.Ended() {
			added = j.applyBegun(x.Job.Index, x.ExecutionID, x.KernelID) || added
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
		added = j.applyEnded(i, contract.StepStatus(known)) || added
	}
	return added
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
