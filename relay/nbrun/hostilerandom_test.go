package nbrun

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/notebook"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// liar is an executor that answers anything, each time something else.
type liar struct {
	enemy
	random           *rand.Rand
	submits, answers int
	steps            []string
	job              string // the id of the present one
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (v *liar) lie(id, requestID string) contract.Execution {
	v.answers++
	r := v.random
	now := time.Now()
	e := contract.Execution{
		ExecutionID: pick(r, id, id, id, id, id, id, id, id, id, "", "other"), RequestID: requestID,
		Status: pick(r, contract.StatusQueued, contract.StatusRunning, contract.StatusWaitingForInput, contract.StatusSucceeded, contract.StatusSucceeded,
			contract.StatusSucceeded, contract.StatusSucceeded, contract.StatusFailed, contract.StatusTimedOut, contract.StatusInterrupted, contract.StatusKernelDied,
			contract.StatusKernelRestarted, contract.StatusLost, contract.StatusCancelled, "", "odd"),
		KernelID: pick(r, "kernel", "kernel", "kernel", "kernel", "", "k2"), ExecutionCount: pick(r, 0, 1, -1, math.MaxInt),
		StartedAt: pick(r, nil, &now), FinishedAt: pick(r, nil, &time.Time{}, &now),
		Error: pick(r, nil, &contract.ExecutionError{EName: "ConnectionError"}), NextOffset: pick[int64](r, 0, 1, -1, math.MaxInt64), End: r.IntN(3) > 0,
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(id, "e")); err == nil {
		e.Job = pick(r, &contract.JobRef{JobID: v.job, Index: n}, &contract.JobRef{JobID: v.job, Index: n}, &contract.JobRef{JobID: v.job, Index: n}, &contract.JobRef{Index: n}, nil)
	}
	for range pick(r, 0, 1, 3) {
		e.Events = append(e.Events, contract.Event{
			Offset: pick[int64](r, 0, 1, 2, -1, math.MaxInt64), DisplayID: pick(r, "", "d"), Text: pick(r, "", "a\r\n"), Wait: r.IntN(2) > 0,
			Type: pick(r, contract.EventStream, contract.EventDisplayData, contract.EventExecuteResult, contract.EventUpdateDisplayData, contract.EventError,
				contract.EventClearOutput, contract.EventInputRequest, contract.EventGap, "odd"),
			Data: pick(r, nil, map[string]json.RawMessage{"text/plain": json.RawMessage(`"x"`), "a/json+json": json.RawMessage(`{"a": 1}`)}),
		})
	}
	return e
}

func (v *liar) Submit(_ context.Context, s contract.Submit) (contract.Execution, error) {
	v.submits++
	if v.random.IntN(8) == 0 {
		return contract.Execution{}, pick[error](v.random, &contract.Error{Code: contract.CodeQueueFull}, &contract.Error{Code: contract.CodeNewInstance}, errCut)
	}
	return v.lie("e"+strconv.Itoa(v.submits), s.RequestID), nil
}

func (v *liar) Execution(ctx context.Context, id string, _ int64, _ time.Duration, _ int64) (contract.Execution, error) {
	if ctx.Err() != nil {
		return contract.Execution{}, ctx.Err()
	}
	if v.random.IntN(20) == 0 {
		v.answers++
		return contract.Execution{}, pick[error](v.random, &contract.Error{Code: contract.CodeNotFound}, &contract.Error{Code: contract.CodeNewInstance}, errCut)
	}
	return v.lie(id, "r"), nil
}

func (v *liar) Interrupt(_ context.Context, id string) (contract.Execution, error) {
	return v.lie(id, "r"), nil
}

func (v *liar) lieAboutJob(id string, from int) (contract.Job, error) {
	v.answers++
	v.job = id
	r := v.random
	if r.IntN(10) == 0 {
		return contract.Job{}, pick[error](r, &contract.Error{Code: contract.CodeNotFound}, &contract.Error{Code: contract.CodeNewInstance}, &contract.Error{Code: contract.CodeConflict}, errCut)
	}
	j := contract.Job{
		JobID: pick(r, id, id, id, id, id, ""), Revision: pick(r, 0, 0, 1, -1), Next: pick(r, 0, 1, 5, -3, math.MaxInt), Entries: pick(r, 0, 5, 5, math.MaxInt),
		State:    pick(r, contract.JobRunning, contract.JobRunning, contract.JobWaiting, contract.JobFinished, contract.JobFailed, contract.JobKernelLost, contract.JobCancelled, "odd"),
		KernelID: pick(r, "kernel", "kernel", "", "k2"), From: pick(r, from, from, from, -1),
	}
	for i := range pick(r, 0, 1, 5) {
		j.Steps = append(j.Steps, contract.JobEntry{
			StepID: pick(r, pick(r, v.steps...), "odd", ""), ExecutionID: pick(r, "e"+strconv.Itoa(from+i), "", "other"), WillRetry: r.IntN(9) == 0,
			Status: pick(r, contract.StepSkipped, contract.StepNotRun, "running", "succeeded", "succeeded", "failed", "kernel_died", "odd"),
		})
	}
	return j, nil
}

func (v *liar) SubmitJobTo(_ context.Context, _ string, s contract.JobSubmit) (contract.Job, error) {
	v.submits++
	v.steps = []string{""}
	for _, step := range s.Steps {
		v.steps = append(v.steps, step.StepID)
	}
	return v.lieAboutJob(s.JobID, 0)
}

func (v *liar) Job(ctx context.Context, id string, from int, _ time.Duration) (contract.Job, error) {
	if ctx.Err() != nil {
		return contract.Job{}, ctx.Err()
	}
	return v.lieAboutJob(id, from)
}

func (v *liar) PatchJob(_ context.Context, _, id string, _ contract.JobPatch) (contract.Job, error) {
	return v.lieAboutJob(id, 0)
}

func (v *liar) DeleteJob(_ context.Context, _, id string, _ bool) (contract.Job, error) {
	return v.lieAboutJob(id, 0)
}

func (v *liar) CurrentKernel(context.Context) (contract.Kernel, error) {
	v.answers++
	return contract.Kernel{KernelID: pick(v.random, "kernel", "kernel", "kernel", "k2", "")}, nil
}

func (v *liar) InstanceID() string {
	return pick(v.random, "instance", "instance", "instance", "instance", "instance", "instance", "other", "")
}

// Whatever an executor answers, a call ends in time, makes a bounded number of requests, and
// leaves a notebook and a record that can be read.
func TestAnExecutorThatLiesIsBounded(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	seeds := uint64(40)
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 1))
		b := write(t, "a = 1", "b = a", "raises-exception| c = b", "save-state| d = c", "e = d")
		s := b.spec()
		s.OnError, s.OnNewKernel = pick(random, SkipDependants, StopOnError, ContinueAfter), pick(random, StopOnNewKernel, Rerun)
		for range 4 {
			vm := &liar{random: random, steps: []string{""}}
			got := b.advance(s, vm, 300*time.Millisecond)
			if random.IntN(3) == 0 {
				_, _ = b.runCell(vm, "c1", 100*time.Millisecond)
			}
			if vm.submits > 200 || vm.answers > 2000 {
				t.Errorf("seed %d: %d submits, %d answers: %s %v", seed, vm.submits, vm.answers, got.cells(), got.err)
			}
			if file, err := notebook.OpenFile(b.path, b.dir); err != nil {
				t.Fatal(err)
			} else if _, err := file.Read(); err != nil {
				t.Fatal(fmt.Errorf("seed %d: %w", seed, err))
			}
			if _, err := loadRecord(b.dir, b.path); err != nil && got.err == nil {
				t.Errorf("seed %d: the record: %v", seed, err)
			}
		}
	}
}
