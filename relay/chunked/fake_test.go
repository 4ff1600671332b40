package chunked

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// fakeVM is an executor with a kernel that does what chunked.run of shared/kernelpy does with a
// loop of total += i. It takes a step at each request, and fails at random.
type fakeVM struct {
	t        *testing.T
	r        *rand.Rand
	odds     float64 // of each fault, at each step
	carries  bool    // the run passes total on
	instance int
	kernel   int
	jobs     map[string]*fakeJob
	entries  map[string]*fakeEntry
	files    map[string]int64 // total, by the path of a copy
	total    int64
	final    int64          // total when the run finished
	ran      map[int64]bool // iterations that ended in this kernel since its last start or restore
	late     bool           // somebody interrupts the last iteration just before its end
	unread   error          // the next answer is lost
	submits  []contract.JobSubmit
	mark     func(text string) []string // replaces markers on their way; nil keeps them
}

type fakeEntry struct{ done int64 }

type fakeJob struct {
	contract.Job
	submit  contract.JobSubmit
	order   order
	entries []contract.JobEntry
	events  map[string]*contract.Execution
}

func newFake(t *testing.T, seed uint64, odds float64) *fakeVM {
	f := &fakeVM{t: t, r: rand.New(rand.NewPCG(seed, 2)), odds: odds, carries: true, jobs: map[string]*fakeJob{}}
	f.newVM()
	return f
}

func (f *fakeVM) newVM() {
	f.instance++
	f.jobs, f.files = map[string]*fakeJob{}, map[string]int64{}
	f.newKernel()
}

func (f *fakeVM) newKernel() {
	f.kernel++
	f.entries, f.total, f.ran = map[string]*fakeEntry{}, 0, map[int64]bool{}
}

func (f *fakeVM) InstanceID() string { return fmt.Sprint("vm-", f.instance) }

func (f *fakeVM) chance() bool { return f.r.Float64() < f.odds }

// running is the job that has not ended.
func (f *fakeVM) running() *fakeJob {
	for _, j := range f.jobs {
		if !j.State.Ended() {
			return j
		}
	}
	return nil
}

// end ends the running job, with the execution that runs.
func (f *fakeVM) end(state contract.JobState, cause contract.JobCause, status contract.Status) {
	j := f.running()
	if j == nil {
		return
	}
	if n := len(j.entries); n > 0 && j.entries[n-1].Status == contract.StepStatus(contract.StatusRunning) {
		f.close(j, status)
	}
	j.State, j.Cause, j.Reason = state, cause, "at random"
}

func (f *fakeVM) close(j *fakeJob, status contract.Status) {
	e := &j.entries[len(j.entries)-1]
	e.Status = contract.StepStatus(status)
	x := j.events[e.ExecutionID]
	x.Status, x.End = status, true
}

// fault makes the VM fail in some way, or in none.
func (f *fakeVM) fault() {
	switch {
	case f.chance(), f.chance():
		f.end(contract.JobKernelLost, "", contract.StatusKernelDied)
		f.newKernel()
	case !f.carries && f.chance():
		f.newVM()
	case f.chance():
		f.end(contract.JobCancelled, contract.CauseInterrupted, contract.StatusInterrupted)
	case f.chance():
		f.end(contract.JobCancelled, contract.CauseDeleted, contract.StatusSucceeded)
	case f.chance() && f.running() == nil:
		f.jobs = map[string]*fakeJob{} // forgotten
	case f.chance():
		f.unread = errors.New("the answer was lost")
	}
}

// step lets the running job do something.
func (f *fakeVM) step() error {
	f.fault()
	if err := f.unread; err != nil {
		f.unread = nil
		return err
	}
	j := f.running()
	switch {
	case j == nil:
	case len(j.entries) == 0:
		f.begin(j)
		f.prepare(j)
		f.close(j, contract.StatusSucceeded)
	case j.entries[len(j.entries)-1].Status != contract.StepStatus(contract.StatusRunning):
		f.begin(j)
	default:
		f.round(j)
	}
	return nil
}

func (f *fakeVM) begin(j *fakeJob) {
	id := fmt.Sprintf("%s-%s-%d", f.InstanceID(), j.JobID, len(j.entries))
	j.entries = append(j.entries, contract.JobEntry{ExecutionID: id, Status: contract.StepStatus(contract.StatusRunning)})
	if j.events == nil {
		j.events = map[string]*contract.Execution{}
	}
	of := &contract.JobRef{JobID: j.JobID, Index: len(j.entries) - 1}
	j.events[id] = &contract.Execution{ExecutionID: id, Job: of, Status: contract.StatusRunning, KernelID: fmt.Sprint("kernel-", f.kernel)}
	j.State, j.KernelID = contract.JobRunning, fmt.Sprint("kernel-", f.kernel)
}

// display reports a marker.
func (f *fakeVM) display(j *fakeJob, event string, done int64, more string) {
	text := fmt.Sprintf(`{"run":%q,"event":%q,"done":%d%s}`, j.order.Key, event, done, more)
	all := []string{text}
	if f.mark != nil {
		all = f.mark(text)
	}
	x := j.events[j.entries[len(j.entries)-1].ExecutionID]
	for _, text := range all {
		x.Events = append(x.Events, contract.Event{Offset: int64(len(x.Events)), Type: contract.EventDisplayData, Data: map[string]json.RawMessage{markerMIME: json.RawMessage(text)}})
	}
}

func (f *fakeVM) prepare(j *fakeJob) {
	o := j.order
	if e := f.entries[o.Key]; e != nil {
		f.display(j, "start", e.done, "")
		return
	}
	e := &fakeEntry{done: o.Done}
	if o.Independent {
		e.done = o.Marked
	}
	f.display(j, "start", e.done, `,"fresh":true`)
	f.total, f.ran = 0, map[int64]bool{}
	if len(o.Carried) > 0 && !o.Independent {
		total, kept := int64(0), false
		if o.Copy != nil {
			total, kept = f.files[o.Copy.Path]
		}
		if !kept {
			f.display(j, "stopped", e.done, `,"reason":"variables_lost","names":["total"]`)
			return
		}
		f.total, e.done = total, o.Copy.Done
	}
	f.entries[o.Key] = e
	f.display(j, "setup", e.done, `,"seconds":0.1`)
	if f.total > 0 {
		f.display(j, "restored", e.done, "")
	}
}

// round runs one iteration, and ends the round at the end of the batch.
func (f *fakeVM) round(j *fakeJob) {
	o, e := j.order, f.entries[j.order.Key]
	if e == nil { // stopped
		f.close(j, contract.StatusSucceeded)
		j.State = contract.JobFinished
		return
	}
	if e.done < o.N {
		if f.ran[e.done] {
			f.t.Errorf("iteration %d ran twice in %s", e.done, j.KernelID)
		}
		f.ran[e.done] = true
		f.total += e.done
		e.done++
		f.display(j, "done", e.done, fmt.Sprintf(`,"count":1,"seconds":0.1,"slowest":0.1,"values":[{"i":%d,"result":"%d"}]`, e.done-1, f.total))
	}
	if e.done%o.BatchSize != 0 && e.done < o.N {
		return
	}
	carried := "[]"
	if f.carries {
		carried = `["total"]`
	}
	path := fmt.Sprint("/tmp/colab-relay-state-", f.r.Int64(), "/data.state")
	f.files[path] = f.total
	f.display(j, "round", e.done, fmt.Sprintf(`,"carried":%s,"kept":{"path":%q,"bytes":10,"sha256":%q,"done":%d,"absent":[]}`, carried, path, strings.Repeat("a", 64), e.done))
	if e.done >= o.N {
		f.final = f.total
		f.display(j, "finished", e.done, "")
	}
	switch {
	case e.done >= o.N && f.late:
		f.end(contract.JobCancelled, contract.CauseInterrupted, contract.StatusInterrupted)
	case e.done >= o.N:
		f.close(j, contract.StatusSucceeded)
		j.State = contract.JobFinished
	default:
		f.close(j, contract.StatusSucceeded)
	}
}

func refuse(code contract.Code) error { return &contract.Error{Code: code, Message: string(code)} }

func (f *fakeVM) head(j *fakeJob) contract.Job {
	x := j.Job
	x.Entries, x.Next = len(j.entries), len(j.entries)
	return x
}

// orderOf reads the order in the code of a job.
func orderOf(t *testing.T, s contract.JobSubmit) order {
	t.Helper()
	code := s.Steps[0].Code
	var text string
	var arguments []order
	at := strings.Index(code, `"[{\"key\"`)
	if at < 0 || json.NewDecoder(strings.NewReader(code[at:])).Decode(&text) != nil || json.Unmarshal([]byte(text), &arguments) != nil {
		t.Fatalf("no order in %.200q", code)
	}
	return arguments[0]
}

func (f *fakeVM) SubmitJobTo(_ context.Context, instance string, s contract.JobSubmit) (contract.Job, error) {
	if instance != f.InstanceID() {
		return contract.Job{}, refuse(contract.CodeNewInstance)
	}
	j := f.jobs[s.JobID]
	if j == nil {
		j = &fakeJob{submit: s, order: orderOf(f.t, s), Job: contract.Job{JobID: s.JobID, State: contract.JobQueued}}
		f.jobs[s.JobID] = j
		f.submits = append(f.submits, s)
	} else if !reflect.DeepEqual(j.submit, s) {
		f.t.Error("a repeated submit differs")
	}
	return f.head(j), f.step()
}

func (f *fakeVM) Job(_ context.Context, id string, from int, _ time.Duration) (contract.Job, error) {
	if err := f.step(); err != nil {
		return contract.Job{}, err
	}
	j := f.jobs[id]
	if j == nil {
		return contract.Job{}, refuse(contract.CodeNotFound)
	}
	x := f.head(j)
	x.From = min(from, x.Entries)
	x.Steps = append([]contract.JobEntry{}, j.entries[x.From:min(x.Entries, x.From+contract.MaxJobEntries)]...)
	return x, nil
}

func (f *fakeVM) PatchJob(context.Context, string, string, contract.JobPatch) (contract.Job, error) {
	return contract.Job{}, refuse(contract.CodeConflict)
}

func (f *fakeVM) DeleteJob(_ context.Context, instance, id string, _ bool) (contract.Job, error) {
	j := f.jobs[id]
	switch {
	case instance != f.InstanceID():
		return contract.Job{}, refuse(contract.CodeNewInstance)
	case j == nil:
		return contract.Job{}, refuse(contract.CodeNotFound)
	case j == f.running():
		f.end(contract.JobCancelled, contract.CauseDeleted, contract.StatusSucceeded)
	}
	return f.head(j), nil
}

func (f *fakeVM) List(context.Context, int) (contract.ExecutionList, error) {
	return contract.ExecutionList{}, nil
}

func (f *fakeVM) Execution(_ context.Context, id string, offset int64, _ time.Duration, _ int64) (contract.Execution, error) {
	if err := f.step(); err != nil {
		return contract.Execution{}, err
	}
	for _, j := range f.jobs {
		if x := j.events[id]; x != nil {
			got := *x
			got.Events = append([]contract.Event{}, x.Events[min(offset, int64(len(x.Events))):]...)
			got.NextOffset = int64(len(x.Events))
			return got, nil
		}
	}
	return contract.Execution{}, refuse(contract.CodeNotFound)
}
