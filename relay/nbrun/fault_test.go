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
	before  func(s contract.Submit) error // a submit is sent; an error means that it is not
	answer  func(e contract.Execution, err error) (contract.Execution, error)
	read    func(e contract.Execution, err error) (contract.Execution, error)
	probed  func(p *contract.Probe)
	submits []contract.Submit
	reads   int
	lists   int
}

func (f *faults) SubmitTo(ctx context.Context, instanceID string, s contract.Submit) (contract.Execution, error) {
	if f.before != nil {
		if err := f.before(s); err != nil {
			return contract.Execution{}, err
		}
	}
	f.submits = append(f.submits, s)
	e, err := f.VM.SubmitTo(ctx, instanceID, s)
	if f.answer != nil {
		e, err = f.answer(e, err)
	}
	return e, err
}

func (f *faults) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	f.reads++
	e, err := f.VM.Execution(ctx, id, offset, wait, maxBytes)
	if f.read != nil {
		e, err = f.read(e, err)
	}
	return e, err
}

func (f *faults) List(ctx context.Context, limit int) (contract.ExecutionList, error) {
	f.lists++
	return f.VM.List(ctx, limit)
}

func (f *faults) Probe(ctx context.Context) (contract.Probe, error) {
	p, err := f.VM.Probe(ctx)
	if f.probed != nil {
		f.probed(&p)
	}
	return p, err
}

// withoutChains makes an executor appear that does not know chains.
func withoutChains(vm VM) *faults {
	return &faults{VM: vm, probed: func(p *contract.Probe) { p.Limits.AfterRequestID = false }}
}

// each runs f with a machine whose executor knows chains, and with one that does not.
func each(t *testing.T, f func(t *testing.T, m *machine, vm *faults)) {
	t.Helper()
	t.Parallel()
	for name, known := range map[string]bool{"chains": true, "singly": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := borrow(t, oldStack(t))
			vm := &faults{VM: m}
			if !known {
				vm = withoutChains(m)
			}
			f(t, m, vm)
		})
	}
}
