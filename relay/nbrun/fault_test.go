package nbrun

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/within"
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

// edited returns a notebook whose last cell is edited while the one before it prints, until "go".
func edited(t *testing.T, m *machine, vm *faults) *book {
	t.Helper()
	prints := src(says("c1") + slow + "; print('.')")
	b := write(t, src(says("c0")), prints, src(says("c2")))
	b.reach(m, b.spec(), vm, "c1")
	b.rewrite(src(says("c0")), prints, src(says("c2")+"#edited"))
	return b
}

// A VM that was replaced after the notebook had been edited does not keep the run from going on.
func TestAnEditedNotebookGoesOnOnANewVM(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := edited(t, m, vm)
		vm.VM = start(t, oldStack(t), t.TempDir())
		b.finish(b.spec(), vm, StatusNewKernel)
		m.touch("go")
		within.Until(t, "the job has ended", func() bool { return slices.Contains(m.ran(), "c2") })
	})
}

// The executor never takes an edit, such as that of a job that was patched too often.
func TestAnEditThatIsNeverTakenIsTriedAFewTimes(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b, tried := edited(t, m, vm), 0
		vm.before = func() error {
			if tried++; tried > maxEdits {
				m.touch("go")
			}
			return &contract.Error{Code: contract.CodeConflict}
		}
		got := b.finish(b.spec(), vm, StatusSucceeded)
		if notes := strings.Join(got.Outcome.Notes, "\n"); tried != maxEdits+1 || !strings.Contains(notes, "refused the notebook's edits") {
			t.Errorf("%d times, notes %q", tried, notes)
		}
		m.ranIs("c0", "c1", "c2")
	})
}

// The first answer is lost, and the next attempt is refused before anybody looks at its job_id.
func TestARefusalSaysNothingAboutAnEarlierAttempt(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")))
		vm.answer = func(contract.Job, error) (contract.Job, error) { return contract.Job{}, errCut }
		b.advance(b.spec(), vm, long)
		vm.answer, vm.before = nil, func() error { return &contract.Error{Code: contract.CodeRateLimited} }
		b.advance(b.spec(), vm, long)
		vm.before = nil
		b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1")
	})
}

// The job of a cell never arrived, and the cell was edited.
func TestACellThatNeverArrivedRunsAsItIsNow(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("old")))
		vm.before = func() error { return errCut }
		if _, err := b.runCell(vm, "c0", long); !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		vm.before = nil
		b.rewrite(src(says("new")))
		if got, err := b.runCell(vm, "c0", long); err != nil || got.Status != contract.StatusSucceeded {
			t.Errorf("%v %s", err, got.Status)
		}
		m.ranIs("new")
	})
}
