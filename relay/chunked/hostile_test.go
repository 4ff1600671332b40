package chunked

import (
	"context"
	"errors"
	"testing"
	"time"

	"colabrelay/relay/jobs"
	"colabrelay/shared/contract"
)

// forger is a VM whose answers about jobs and their executions are changed.
type forger struct {
	*fakeVM
	job       func(j *contract.Job)
	execution func(x *contract.Execution)
}

func (f forger) Job(ctx context.Context, id string, from int, wait time.Duration) (contract.Job, error) {
	j, err := f.fakeVM.Job(ctx, id, from, wait)
	if f.job != nil {
		f.job(&j)
	}
	return j, err
}

func (f forger) Execution(ctx context.Context, id string, offset int64, wait time.Duration, most int64) (contract.Execution, error) {
	x, err := f.fakeVM.Execution(ctx, id, offset, wait, most)
	if f.execution != nil && x.Job != nil {
		of := *x.Job
		x.Job = &of
		f.execution(&x)
	}
	return x, err
}

// A run is finished only by a job that finished without a failed round, whatever its markers say.
func TestARunWhoseLastRoundFailedIsNotFinished(t *testing.T) {
	const rounds, batch = 5, 10
	for name, c := range map[string]struct {
		state contract.JobState
		cause contract.JobCause
	}{
		"the job finished":   {contract.JobFinished, ""},
		"the round ended it": {contract.JobFailed, contract.CauseStepFailed},
	} {
		inBubble(t, func(t *testing.T, dir string) {
			lie := forger{fakeVM: newFake(t, 1, 0), job: func(j *contract.Job) {
				if !j.State.Ended() {
					return
				}
				j.State, j.Cause = c.state, c.cause
				for i := range j.Steps {
					if j.From+i == rounds {
						j.Steps[i].Status = "failed"
					}
				}
			}, execution: func(x *contract.Execution) {
				if x.Job.Index == rounds && x.Status == contract.StatusSucceeded {
					x.Status = contract.StatusFailed
				}
			}}
			s := spec("", "total += i", rounds*batch)
			s.BatchSize = batch
			a := call(t, dir, s, lie, time.Minute)
			if a.Status == StatusFinished || (c.state == contract.JobFinished) != errors.Is(a.err, jobs.ErrAnswer) {
				t.Errorf("%s: %s, %v", name, a.Status, a.err)
			}
			if c.state == contract.JobFinished {
				return
			}
			if b := call(t, dir, s, lie, time.Minute); b.Status == StatusFinished && len(lie.submits) < 2 {
				t.Errorf("%s: the next call says %s and asked nothing", name, b.Status)
			}
		})
	}
}
