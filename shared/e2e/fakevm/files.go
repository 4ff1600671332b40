package fakevm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/shared/contract"
)

// Root is the folder that relative paths start from.
const Root = "/content"

// modified is the time of every file. An etag therefore depends on the content only.
var modified = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// Put creates or changes a file. A folder exists if a file is in it.
func (v *VM) Put(name string, content []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.files[at(name)] = slices.Clone(content)
}

// File returns the content of a file.
func (v *VM) File(name string) ([]byte, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	content, ok := v.files[at(name)]
	return slices.Clone(content), ok
}

// Digest returns the SHA-256 of content in hexadecimal, as in the contract.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func at(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(Root, name)
	}
	return path.Clean(contract.EscapeName(contract.UnescapeName(name)))
}

// findLocked returns a file or folder.
func (v *VM) findLocked(name string) (contract.FileStat, error) {
	name = at(name)
	st := contract.FileStat{File: contract.File{Name: path.Base(name), Path: name, Modified: modified}}
	if content, ok := v.files[name]; ok {
		st.SizeBytes, st.ETag = int64(len(content)), Digest(content)[:16]
		return st, nil
	}
	for one := range v.files {
		st.IsDir = st.IsDir || strings.HasPrefix(one, name+"/")
	}
	if !st.IsDir && name != Root {
		return st, &contract.Error{Code: contract.CodeNotFound, Message: fmt.Sprintf("%q does not exist", name)}
	}
	st.IsDir = true
	return st, nil
}

func (v *VM) stat(q url.Values) (contract.FileStat, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	st, err := v.findLocked(q.Get("path"))
	if err == nil && !st.IsDir && q.Get("digest") == "1" {
		st.SHA256 = Digest(v.files[st.Path])
	}
	return st, err
}

func (v *VM) list(q url.Values) (contract.Files, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	dir, err := v.findLocked(q.Get("path"))
	if err != nil {
		return contract.Files{}, err
	}
	if !dir.IsDir {
		return contract.Files{}, &contract.Error{Code: contract.CodeBadRequest, Message: "not a folder"}
	}
	names := map[string]bool{}
	for one := range v.files {
		if rest, ok := strings.CutPrefix(one, dir.Path+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			names[first] = true
		}
	}
	got := contract.Files{Path: dir.Path, Files: []contract.File{}}
	for name := range names {
		one, err := v.findLocked(path.Join(dir.Path, name))
		if err != nil {
			return got, err
		}
		if one.IsDir {
			got.DirCount++
		} else {
			got.FileCount++
		}
		if name > q.Get("after") {
			got.Files = append(got.Files, one.File)
		}
	}
	slices.SortFunc(got.Files, func(a, b contract.File) int { return strings.Compare(a.Name, b.Name) })
	return got, nil
}

func (v *VM) content(q url.Values) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	st, err := v.findLocked(q.Get("path"))
	if err != nil {
		return nil, err
	}
	if st.ETag != q.Get("etag") {
		return nil, &contract.Error{Code: contract.CodeChanged, Message: "the file changed"}
	}
	offset, err1 := strconv.ParseInt(q.Get("offset"), 10, 64)
	length, err2 := strconv.ParseInt(q.Get("length"), 10, 64)
	if err1 != nil || err2 != nil || length > contract.MaxFilePart {
		return nil, &contract.Error{Code: contract.CodeBadRequest, Message: "offset or length"}
	}
	content := v.files[st.Path]
	from := min(offset, st.SizeBytes)
	return slices.Clone(content[from:min(from+length, st.SizeBytes)]), nil
}

// job is a job that was submitted. There is no kernel: the next entry begins when the job is
// read, and ends when its execution is read. A loop has one round.
type job struct {
	contract.Job
	submit  contract.JobSubmit
	entries []contract.JobEntry
	running *contract.Execution
	deleted bool
}

// answerJob answers a request about jobs.
func (v *VM) answerJob(r *http.Request, body []byte) (any, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id := strings.Trim(strings.TrimPrefix(r.URL.Path, contract.PathJobs), "/")
	switch j := v.jobs[id]; {
	case id == "" && r.Method == http.MethodPost:
		return v.submitJobLocked(body)
	case j == nil:
		return nil, &contract.Error{Code: contract.CodeNotFound, Message: "no such job"}
	case r.Method == http.MethodPatch:
		return j.patch(body)
	case r.Method == http.MethodDelete:
		j.delete(r.URL.Query().Get("interrupt") == "true")
		return j.head(), nil
	default:
		v.beginLocked(j)
		from, _ := strconv.Atoi(r.URL.Query().Get("from"))
		return j.list(max(0, from)), nil
	}
}

func (v *VM) submitJobLocked(body []byte) (contract.Job, error) {
	var s contract.JobSubmit
	if err := json.Unmarshal(body, &s); err != nil || !contract.JobIDPattern().MatchString(s.JobID) || len(s.Steps) == 0 && s.Loop == nil {
		return contract.Job{}, &contract.Error{Code: contract.CodeBadRequest, Message: fmt.Sprint("the job is not valid: ", err)}
	}
	j := v.jobs[s.JobID]
	switch {
	case j == nil:
		j = &job{submit: s}
		j.Job = contract.Job{JobID: s.JobID, State: contract.JobQueued, StepCount: len(s.Steps), KernelID: s.KernelID, CreatedAt: modified}
		j.add(s.Steps)
		v.jobs[s.JobID] = j
	case !reflect.DeepEqual(j.submit, s):
		return contract.Job{}, &contract.Error{Code: contract.CodeConflict, Message: "this job_id was used for a different job"}
	}
	return j.head(), nil
}

// add adds steps that have not begun.
func (j *job) add(steps []contract.JobStep) {
	for _, s := range steps {
		j.entries = append(j.entries, contract.JobEntry{StepID: s.StepID, Status: contract.StepWaits})
	}
	j.StepCount = len(j.entries)
}

// head is the job without its entries.
func (j *job) head() contract.Job {
	x := j.Job
	x.Entries, x.Steps = len(j.entries), []contract.JobEntry{}
	return x
}

// list is the job with its entries from index from on.
func (j *job) list(from int) contract.Job {
	x := j.head()
	x.From = min(from, x.Entries)
	listed := x.Entries
	if !x.State.Ended() {
		listed = j.Next
	}
	if x.From < listed {
		x.Steps = slices.Clone(j.entries[x.From:min(listed, x.From+contract.MaxJobEntries)])
	}
	return x
}

// beginLocked begins the next entry, or ends the job if there is none.
func (v *VM) beginLocked(j *job) {
	if j.State.Ended() || j.running != nil {
		return
	}
	for j.Next < len(j.entries) && j.skips(j.Next) {
		j.entries[j.Next].Status = contract.StepSkipped
		j.Next++
	}
	if j.Next == len(j.entries) {
		if j.submit.Loop == nil || j.Next > j.StepCount {
			j.end(contract.JobFinished, "")
			return
		}
		j.entries = append(j.entries, contract.JobEntry{})
	}
	e := &j.entries[j.Next]
	e.ExecutionID, e.Status = fmt.Sprintf("%s-%d", j.JobID, j.Next), contract.StepStatus(contract.StatusRunning)
	j.State, j.KernelID = contract.JobRunning, kernelID
	j.running = &contract.Execution{
		ExecutionID: e.ExecutionID, RequestID: "request-of-" + e.ExecutionID, Job: &contract.JobRef{JobID: j.JobID, Index: j.Next}, Status: contract.StatusRunning,
		KernelID: kernelID, CreatedAt: modified, StartedAt: &modified, Events: []contract.Event{{Type: contract.EventStream, Name: contract.Stdout, Text: "hello\n", Time: modified}}, NextOffset: 1,
	}
	v.runs[e.ExecutionID] = j.running
	j.Next++
}

// step is that of an entry; a round has none.
func (j *job) step(index int) (s contract.JobStep) {
	at := slices.IndexFunc(j.submit.Steps, func(s contract.JobStep) bool { return s.StepID == j.entries[index].StepID })
	if at >= 0 {
		s = j.submit.Steps[at]
	}
	return s
}

// skips reports whether a step needs one that failed or was skipped.
func (j *job) skips(index int) bool {
	need := j.step(index).SkipIfFailed
	return slices.ContainsFunc(j.entries[:index], func(e contract.JobEntry) bool {
		return slices.Contains(need, e.StepID) && e.Status != contract.StepStatus(contract.StatusSucceeded)
	})
}

// end ends the job. Steps that have not begun do not run.
func (j *job) end(state contract.JobState, cause contract.JobCause) {
	j.State, j.Cause, j.FinishedAt = state, cause, &modified
	for i := j.Next; i < len(j.entries); i++ {
		j.entries[i].Status = contract.StepNotRun
	}
}

// delete has nothing further begin.
func (j *job) delete(interrupt bool) {
	j.deleted = true
	switch {
	case j.State.Ended():
	case j.running == nil:
		j.end(contract.JobCancelled, contract.CauseDeleted)
	case interrupt:
		j.endEntry(contract.StatusInterrupted)
	}
}

// endEntry ends the entry that runs.
func (j *job) endEntry(status contract.Status) {
	index := j.Next - 1
	j.running.Status, j.running.End, j.running.FinishedAt = status, true, &modified
	j.entries[index].Status, j.running = contract.StepStatus(status), nil
	switch {
	case j.deleted:
		j.end(contract.JobCancelled, contract.CauseDeleted)
	case status == contract.StatusInterrupted:
		j.end(contract.JobCancelled, contract.CauseInterrupted)
	case status == contract.StatusKernelDied, status == contract.StatusKernelRestarted, status == contract.StatusLost:
		j.end(contract.JobKernelLost, "")
	case status == contract.StatusTimedOut:
		j.end(contract.JobFailed, contract.CauseStepTimedOut)
	case status != contract.StatusSucceeded && !j.step(index).MayFail:
		j.end(contract.JobFailed, contract.CauseStepFailed)
	}
}

func (j *job) patch(body []byte) (contract.Job, error) {
	var p contract.JobPatch
	if err := json.Unmarshal(body, &p); err != nil {
		return contract.Job{}, badRequest(err)
	}
	at := slices.IndexFunc(j.entries, func(e contract.JobEntry) bool { return e.StepID == p.From })
	if p.From == "" {
		at = j.StepCount
	}
	if j.State.Ended() || at < j.Next || at > j.StepCount || p.Revision != j.Revision {
		return contract.Job{}, &contract.Error{Code: contract.CodeConflict, Message: "the job does not allow that"}
	}
	j.Revision++
	j.submit.Steps = append(j.submit.Steps[:at:at], p.Steps...)
	j.entries = j.entries[:at:at]
	j.add(p.Steps)
	return j.head(), nil
}

// Run returns the execution of a job's entry, and false if no job has one with this id.
func (v *VM) Run(id string) (contract.Execution, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	x, ok := v.runs[id]
	if !ok {
		return contract.Execution{}, false
	}
	return *x, true
}

// EndRun ends the execution of a job's entry, if it runs.
func (v *VM) EndRun(id string, status contract.Status) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if x := v.runs[id]; x != nil && !x.End {
		v.jobs[x.Job.JobID].endEntry(status)
	}
}

// readRun answers a read of the execution of a job's entry, which ends with it.
func (v *VM) readRun(r *http.Request) (contract.Execution, bool) {
	id := strings.TrimPrefix(r.URL.Path, contract.PathExecutions+"/")
	v.EndRun(id, contract.StatusSucceeded)
	x, ok := v.Run(id)
	if offset, _ := strconv.Atoi(r.URL.Query().Get("offset")); ok && offset > 0 {
		x.Events = []contract.Event{}
	}
	return x, ok
}
