package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"colabrelay/shared/contract"
)

// memoryVM is an executor with jobs, in memory. It runs no code: a test says when an entry begins and
// how it ends.
type memoryVM struct {
	mu         sync.Mutex
	instance   string
	jobs       map[string]*job
	executions map[string]*contract.Execution
	behind     *contract.Behind
	changed    chan struct{}
}

type job struct {
	contract.Job
	submit  contract.JobSubmit
	entries []contract.JobEntry
}

func newVM(instance string) *memoryVM {
	return &memoryVM{instance: instance, jobs: map[string]*job{}, executions: map[string]*contract.Execution{}, changed: make(chan struct{})}
}

// InstanceID is the instance that answers.
func (vm *memoryVM) InstanceID() string {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return vm.instance
}

// Replace has another VM take over the address. It knows nothing.
func (vm *memoryVM) Replace(instance string) {
	vm.change(func() {
		vm.instance, vm.jobs, vm.executions = instance, map[string]*job{}, map[string]*contract.Execution{}
	})
}

// SetBehind sets which run the jobs wait for.
func (vm *memoryVM) SetBehind(b *contract.Behind) { vm.change(func() { vm.behind = b }) }

// Begin begins the next entry of the only job, or the next attempt of the last one, and
// returns its execution.
func (vm *memoryVM) Begin() (id string) {
	vm.change(func() {
		j := vm.only()
		i := j.Next
		if i > 0 && j.entries[i-1].WillRetry {
			i--
		} else if j.Next++; i == len(j.entries) {
			j.entries = append(j.entries, contract.JobEntry{})
		}
		e := &j.entries[i]
		if e.ExecutionID != "" {
			e.Earlier = append(e.Earlier, e.ExecutionID)
		}
		id = fmt.Sprintf("%s-%d-%d", vm.instance, i, len(e.Earlier))
		e.ExecutionID, e.Status, e.WillRetry = id, contract.StepStatus(contract.StatusRunning), false
		vm.executions[id] = &contract.Execution{ExecutionID: id, Job: &contract.JobRef{JobID: j.JobID, Index: i}, Status: contract.StatusRunning, KernelID: "kernel"}
		j.State, j.KernelID = contract.JobRunning, "kernel"
	})
	return id
}

// Print adds output to an execution.
func (vm *memoryVM) Print(id, text string) {
	vm.change(func() {
		x := vm.executions[id]
		x.Events = append(x.Events, contract.Event{Offset: int64(len(x.Events)), Type: contract.EventStream, Name: "stdout", Text: text})
	})
}

// End ends the running entry. With retry, it runs again.
func (vm *memoryVM) End(status contract.Status, retry bool) {
	vm.change(func() {
		j := vm.only()
		e := &j.entries[j.Next-1]
		e.Status, e.WillRetry = contract.StepStatus(status), retry
		vm.executions[e.ExecutionID].Status = status
	})
}

// Omit skips the next step.
func (vm *memoryVM) Omit() {
	vm.change(func() {
		j := vm.only()
		j.entries[j.Next].Status = contract.StepSkipped
		j.Next++
	})
}

// Finish ends the job. Steps that have not begun do not run.
func (vm *memoryVM) Finish(state contract.JobState, cause contract.JobCause) {
	vm.change(func() {
		j := vm.only()
		j.State, j.Cause = state, cause
		for i := j.Next; i < len(j.entries); i++ {
			j.entries[i].Status = contract.StepNotRun
		}
	})
}

// Forget deletes an execution, or with an empty id the list of the job's steps.
func (vm *memoryVM) Forget(id string) {
	vm.change(func() {
		delete(vm.executions, id)
		if id == "" {
			vm.only().entries = nil
		}
	})
}

// Steps are those of the only job, as submitted and edited.
func (vm *memoryVM) Steps() []contract.JobStep {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	return slices.Clone(vm.only().submit.Steps)
}

func (vm *memoryVM) only() *job {
	for _, j := range vm.jobs {
		return j
	}
	panic("no job was submitted")
}

// change changes the VM and wakes who waits for that.
func (vm *memoryVM) change(f func()) {
	vm.mu.Lock()
	defer vm.mu.Unlock()
	f()
	close(vm.changed)
	vm.changed = make(chan struct{})
}

// await waits until ready holds or the wait is over, and returns with the lock held.
func (vm *memoryVM) await(ctx context.Context, wait time.Duration, ready func() bool) {
	end := time.NewTimer(wait)
	defer end.Stop()
	vm.mu.Lock()
	for wait > 0 && ctx.Err() == nil && !ready() {
		changed := vm.changed
		vm.mu.Unlock()
		select {
		case <-changed:
		case <-end.C:
			wait = 0
		case <-ctx.Done():
		}
		vm.mu.Lock()
	}
}

func refuse(code contract.Code) error { return &contract.Error{Code: code, Message: string(code)} }

// SubmitJobTo accepts a job, or returns the one of that id.
func (vm *memoryVM) SubmitJobTo(ctx context.Context, instanceID string, s contract.JobSubmit) (contract.Job, error) {
	vm.await(ctx, 0, nil)
	defer vm.mu.Unlock()
	if instanceID != vm.instance {
		return contract.Job{}, refuse(contract.CodeNewInstance)
	}
	if known := vm.jobs[s.JobID]; known != nil {
		return known.Job, nil
	}
	j := &job{submit: s, Job: contract.Job{JobID: s.JobID, State: contract.JobQueued, StepCount: len(s.Steps)}}
	for _, step := range s.Steps {
		j.entries = append(j.entries, contract.JobEntry{StepID: step.StepID, Status: contract.StepWaits})
	}
	vm.jobs[s.JobID] = j
	return vm.head(j), nil
}

func (vm *memoryVM) head(j *job) contract.Job {
	x := j.Job
	if x.Entries = len(j.entries); j.entries == nil {
		x.Entries = x.Next
	}
	if !x.State.Ended() {
		x.Behind = vm.behind
	}
	return x
}

// Job reads a job as the executor does.
func (vm *memoryVM) Job(ctx context.Context, id string, from int, wait time.Duration) (contract.Job, error) {
	vm.await(ctx, wait, func() bool {
		j := vm.jobs[id]
		return j == nil || j.State.Ended() || j.State == contract.JobWaiting || j.Next > from
	})
	defer vm.mu.Unlock()
	j := vm.jobs[id]
	if j == nil {
		return contract.Job{}, refuse(contract.CodeNotFound)
	}
	x := vm.head(j)
	x.From = min(from, x.Entries)
	listed := len(j.entries)
	if !x.State.Ended() {
		listed = j.Next
	}
	if x.From < listed {
		x.Steps = slices.Clone(j.entries[x.From:min(listed, x.From+contract.MaxJobEntries)])
	}
	return x, ctx.Err()
}

// PatchJob replaces steps.
func (vm *memoryVM) PatchJob(ctx context.Context, instanceID, id string, p contract.JobPatch) (contract.Job, error) {
	vm.await(ctx, 0, nil)
	defer vm.mu.Unlock()
	j := vm.jobs[id]
	at := -1
	if j != nil {
		at = slices.IndexFunc(j.submit.Steps, func(s contract.JobStep) bool { return s.StepID == p.From })
		if p.From == "" {
			at = len(j.submit.Steps)
		}
	}
	switch {
	case instanceID != vm.instance:
		return contract.Job{}, refuse(contract.CodeNewInstance)
	case j == nil:
		return contract.Job{}, refuse(contract.CodeNotFound)
	case j.State.Ended() || p.Revision != j.Revision || at < j.Next:
		return contract.Job{}, refuse(contract.CodeConflict)
	}
	j.submit.Steps, j.entries = append(j.submit.Steps[:at:at], p.Steps...), j.entries[:at:at]
	for _, step := range p.Steps {
		j.entries = append(j.entries, contract.JobEntry{StepID: step.StepID, Status: contract.StepWaits})
	}
	j.Revision++
	return vm.head(j), nil
}

// DeleteJob ends a job that has nothing running.
func (vm *memoryVM) DeleteJob(ctx context.Context, instanceID, id string, _ bool) (contract.Job, error) {
	vm.await(ctx, 0, nil)
	defer vm.mu.Unlock()
	j := vm.jobs[id]
	switch {
	case instanceID != vm.instance:
		return contract.Job{}, refuse(contract.CodeNewInstance)
	case j == nil:
		return contract.Job{}, refuse(contract.CodeNotFound)
	case !j.State.Ended():
		j.State, j.Cause = contract.JobCancelled, contract.CauseDeleted
	}
	return vm.head(j), nil
}

// Execution reads an execution as the executor does.
func (vm *memoryVM) Execution(ctx context.Context, id string, offset int64, wait time.Duration, _ int64) (contract.Execution, error) {
	vm.await(ctx, wait, func() bool {
		x := vm.executions[id]
		return x == nil || x.Status != contract.StatusRunning || int64(len(x.Events)) > offset
	})
	defer vm.mu.Unlock()
	x := vm.executions[id]
	if x == nil {
		return contract.Execution{}, refuse(contract.CodeNotFound)
	}
	got := *x
	got.Events = slices.Clone(x.Events[min(offset, int64(len(x.Events))):])
	got.NextOffset, got.End = int64(len(x.Events)), x.Status.Finished()
	return got, ctx.Err()
}
