package nbrun

import (
	"context"
	"errors"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

var errCut = errors.New("the connection was cut")

// faults is a VM whose requests and answers a test can change.
type faults struct {
	VM
	before  func() error                                          // a job is submitted or edited; an error means that it is not
	answer  func(j contract.Job, err error) (contract.Job, error) // to a submit or an edit
	read    func(e contract.Execution, err error) (contract.Execution, error)
	looked  func(j contract.Job)
	submits int
	looks   int
	patches int
	reads   int
}

func (f *faults) SubmitJobTo(ctx context.Context, instanceID string, s contract.JobSubmit) (contract.Job, error) {
	return f.change(&f.submits, func() (contract.Job, error) { return f.VM.SubmitJobTo(ctx, instanceID, s) })
}

func (f *faults) PatchJob(ctx context.Context, instanceID, id string, p contract.JobPatch) (contract.Job, error) {
	return f.change(&f.patches, func() (contract.Job, error) { return f.VM.PatchJob(ctx, instanceID, id, p) })
}

func (f *faults) change(count *int, request func() (contract.Job, error)) (contract.Job, error) {
	if f.before != nil {
		if err := f.before(); err != nil {
			return contract.Job{}, err
		}
	}
	*count++
	j, err := request()
	if f.answer != nil {
		j, err = f.answer(j, err)
	}
	return j, err
}

func (f *faults) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	f.reads++
	e, err := f.VM.Execution(ctx, id, offset, wait, maxBytes)
	if f.read != nil {
		e, err = f.read(e, err)
	}
	return e, err
}

func (f *faults) Job(ctx context.Context, id string, from int, wait time.Duration) (contract.Job, error) {
	j, err := f.VM.Job(ctx, id, from, wait)
	if f.looked != nil {
		f.looks++
		f.looked(j)
	}
	return j, err
}

// withFaults runs f with a machine and a VM whose requests it can change.
func withFaults(t *testing.T, f func(t *testing.T, m *machine, vm *faults)) {
	t.Helper()
	t.Parallel()
	m := borrow(t, oldStack(t))
	f(t, m, &faults{VM: m})
}
