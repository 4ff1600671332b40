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

// A VM that was replaced after the notebook had been edited does not keep the run from going on.
func TestAnEditedNotebookGoesOnOnANewVM(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")))
		s := b.spec()
		b.reach(m, s, vm, "c1")
		b.rewrite(src(says("c0")), src(says("c1")+slow), src(says("c2")+"#edited"))
		vm.VM = start(t, oldStack(t), t.TempDir())
		if got := b.advance(s, vm, 2*time.Second); got.err != nil || got.Status() != StatusNewKernel {
			t.Errorf("%v, %s", got.err, got.Status())
		}
		m.touch("go")
		within.Until(t, "the job has ended", func() bool { return slices.Contains(m.ran(), "c2") })
	})
}

// The executor never takes an edit, such as that of a job that was patched too often.
func TestAnEditThatIsNeverTakenIsTriedAFewTimes(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")))
		s := b.spec()
		b.reach(m, s, vm, "c1")
		b.rewrite(src(says("c0")), src(says("c1")+slow), src(says("c2")+"#edited"))
		tried := 0
		vm.before = func() error { tried++; return &contract.Error{Code: contract.CodeConflict} }
		got := b.advance(s, vm, time.Second)
		if notes := strings.Join(got.Outcome.Notes, "\n"); tried > maxEdits+1 || !strings.Contains(notes, "did not take the notebook's edits") {
			t.Errorf("%d times, %q", tried, notes)
		}
		m.touch("go")
		within.Until(t, "the job has ended", func() bool { return slices.Contains(m.ran(), "c2") })
	})
}

// The first answer is lost, and the next attempt is refused before anybody looks at its job_id.
func TestARefusalSaysNothingAboutAnEarlierAttempt(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")))
		vm.answer = func(contract.Job, error) (contract.Job, error) { return contract.Job{}, errCut }
		b.advance(b.spec(), vm, time.Second)
		vm.answer, vm.before = nil, func() error { return &contract.Error{Code: contract.CodeRateLimited} }
		b.advance(b.spec(), vm, time.Second)
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
		if _, err := b.runCell(vm, "c0", time.Second); !errors.Is(err, errCut) {
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
