package nbrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/jobs"
	"colabrelay/shared/contract"
)

// enemy is an executor without a kernel, whose answers a test makes up.
type enemy struct {
	answer func(e *contract.Execution, s contract.Submit)
	runs   map[string]contract.Execution
	job    contract.Job
}

func (v *enemy) InstanceID() string { return "instance" }

func (v *enemy) Submit(_ context.Context, s contract.Submit) (contract.Execution, error) {
	e := contract.Execution{
		ExecutionID: fmt.Sprintf("e%d", len(v.runs)), RequestID: s.RequestID, Job: s.Job, Status: contract.StatusSucceeded, KernelID: "kernel", End: true,
	}
	v.answer(&e, s)
	if v.runs == nil {
		v.runs = map[string]contract.Execution{}
	}
	v.runs[e.ExecutionID] = e
	return e, nil
}

func (v *enemy) Execution(_ context.Context, id string, offset int64, _ time.Duration, _ int64) (contract.Execution, error) {
	e, known := v.runs[id]
	if !known {
		return e, &contract.Error{Code: contract.CodeNotFound}
	}
	if offset > 0 {
		e.Events = nil
	}
	return e, nil
}

func (v *enemy) Interrupt(_ context.Context, id string) (contract.Execution, error) {
	return v.runs[id], nil
}

func (v *enemy) SubmitJobTo(ctx context.Context, _ string, s contract.JobSubmit) (contract.Job, error) {
	v.job = contract.Job{JobID: s.JobID, State: contract.JobFinished, KernelID: "kernel", Next: len(s.Steps), Entries: len(s.Steps), Steps: []contract.JobEntry{}}
	for i, step := range s.Steps {
		e, err := v.Submit(ctx, contract.Submit{Code: step.Code, Job: &contract.JobRef{JobID: s.JobID, Index: i}})
		if err != nil {
			return v.job, err
		}
		entry := contract.JobEntry{StepID: step.StepID, ExecutionID: e.ExecutionID, Status: contract.StepStatus(e.Status)}
		v.job.Steps = append(v.job.Steps, entry)
	}
	return v.job, nil
}

func (v *enemy) Job(_ context.Context, _ string, from int, _ time.Duration) (contract.Job, error) {
	j := v.job
	j.From = min(from, len(j.Steps))
	j.Steps = j.Steps[j.From:min(len(j.Steps), j.From+contract.MaxJobEntries)]
	return j, nil
}

func (v *enemy) PatchJob(context.Context, string, string, contract.JobPatch) (contract.Job, error) {
	return v.job, nil
}

func (v *enemy) DeleteJob(context.Context, string, string, bool) (contract.Job, error) {
	return v.job, nil
}

func (v *enemy) Blob(context.Context, string, contract.Blob, io.Writer) error { return errCut }

func (v *enemy) CurrentKernel(context.Context) (contract.Kernel, error) {
	return contract.Kernel{KernelID: "kernel"}, nil
}

func (v *enemy) RestartKernel(ctx context.Context, _ string) (contract.Kernel, error) {
	return v.CurrentKernel(ctx)
}

// An executor says as much of each cell as it may.
func TestWhatTheVMSaysOfACellIsBounded(t *testing.T) {
	t.Parallel()
	b := write(t, "1")
	got := b.advance(b.spec(), &enemy{answer: func(e *contract.Execution, _ contract.Submit) {
		e.Status, e.Reason = contract.StatusFailed, strings.Repeat("r", 1<<16)
		e.Error = &contract.ExecutionError{EName: strings.Repeat("n", 1<<16), EValue: strings.Repeat("v", 1<<16)}
	}}, long)
	f := got.Run.Plan[0].Failure()
	if got.err != nil || f == nil || len(f.EName) != maxName || len(f.EValue) != maxValue || len(f.Reason) != maxValue {
		t.Errorf("%v, %+v", got.err, f)
	}
}

// reordered is an enemy whose job is said to be another one than was sent.
type reordered struct {
	*enemy
	change  func(j *contract.Job)
	submits int
}

func (v *reordered) SubmitJobTo(ctx context.Context, instance string, s contract.JobSubmit) (contract.Job, error) {
	v.submits++
	j, err := v.enemy.SubmitJobTo(ctx, instance, s)
	j.Steps = nil
	return j, err
}

func (v *reordered) Job(ctx context.Context, id string, from int, wait time.Duration) (contract.Job, error) {
	j, err := v.enemy.Job(ctx, id, from, wait)
	j.Steps = slices.Clone(j.Steps)
	v.change(&j)
	return j, err
}

// A cell gets what its own step did, and a job that finished has run its cells.
func TestCellsAreNotTradedForEachOther(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(j *contract.Job){
		"steps in another order": func(j *contract.Job) {
			if len(j.Steps) == 2 {
				j.Steps[0].StepID, j.Steps[1].StepID = j.Steps[1].StepID, j.Steps[0].StepID
			}
		},
		"one step twice": func(j *contract.Job) {
			if len(j.Steps) == 2 {
				j.Steps[1].StepID = j.Steps[0].StepID
			}
		},
		"cells that did not run": func(j *contract.Job) {
			for i := range j.Steps {
				j.Steps[i].Status, j.Steps[i].ExecutionID = contract.StepNotRun, ""
			}
		},
		"edited, without entries": func(j *contract.Job) { j.Revision, j.Entries, j.Steps = 1, 0, nil },
	} {
		b := write(t, "1", "2")
		vm := &reordered{enemy: &enemy{answer: func(*contract.Execution, contract.Submit) {}}, change: change}
		got := b.advance(b.spec(), vm, long)
		if !errors.Is(got.err, jobs.ErrAnswer) || got.Status() == StatusSucceeded || vm.submits > maxReruns+1 {
			t.Errorf("%s: %s, %d jobs, %v", name, got.cells(), vm.submits, got.err)
		}
	}
}
