package nbrun

import (
	"errors"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/within"
)

// cellCall is the result of one call.
type cellCall struct {
	contract.Execution
	notes string
}

// runCell does what one call of run_code_cell does in this package.
func (b *book) runCell(vm VM, handle string, callTime time.Duration) (cellCall, error) {
	b.t.Helper()
	x, notes, err := RunCell(within.Context(b.t), vm, b.dir, Spec{Path: b.path, Cells: handle}, Options{Until: time.Now().Add(callTime)})
	return cellCall{x, strings.Join(notes, "\n")}, err
}

// beginCell repeats a short call until the cell runs. Its code begins with says(handle).
func (b *book) beginCell(m *machine, handle string) (got cellCall) {
	b.t.Helper()
	within.Until(b.t, handle+" runs", func() bool {
		var err error
		if got, err = b.runCell(m, handle, 200*time.Millisecond); err != nil || got.End {
			b.t.Fatalf("%v, %s", err, got.Status)
		}
		return got.Status == contract.StatusRunning && len(m.ran()) > 0
	})
	return got
}

func TestACellThatRunsIsAttachedToUnlessItWasEdited(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+slow+"\nprint('done')"), "2")
	got := b.beginCell(m, "c0")
	if got.ExecutionID == "" {
		t.Fatalf("%+v", got)
	}
	again, err := b.runCell(m, "c0", 100*time.Millisecond)
	if err != nil || again.ExecutionID != got.ExecutionID {
		t.Fatalf("%v %+v", err, again)
	}
	b.rewrite("3", "2")
	if _, err = b.runCell(m, "c0", 100*time.Millisecond); !errors.Is(err, ErrConflict) {
		t.Fatalf("with another source: %v", err)
	}
	b.rewrite(src(says("c0")+slow+"\nprint('done')"), "2")
	m.touch("go")
	if got, err = b.runCell(m, "c0", long); err != nil || got.Status != "succeeded" || b.outputs("c0") != "done\n" {
		t.Fatalf("%v %s %q", err, got.Status, b.outputs("c0"))
	}
	m.ranIs("c0")
}

func TestLostAnswersOfOneCell(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+"\nprint('out')"))
	vm := &faults{VM: m, answer: func(contract.Job, error) (contract.Job, error) { return contract.Job{}, errCut }}
	if _, err := b.runCell(vm, "c0", long); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	vm.answer = nil
	got, err := b.runCell(vm, "c0", long)
	if err != nil || got.Status != "succeeded" || b.outputs("c0") != "out\n" {
		t.Fatalf("%v %s %q", err, got.Status, b.outputs("c0"))
	}
	m.ranIs("c0")
}

// A call about another cell records the end of the first one. The call that asks what became of
// the first must not run it again.
func TestACellWhoseEndAnotherCallReadDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+slow+"\nprint('done')"), src(says("c1")))
	b.beginCell(m, "c0")
	m.touch("go")
	for _, test := range []struct{ handle, ran string }{{"c1", "c0 c1"}, {"c1", "c0 c1 c1"}, {"c0", "c0 c1 c1"}, {"c0", "c0 c1 c1 c0"}} {
		got, err := b.runCell(m, test.handle, long)
		if err != nil || got.Status != "succeeded" {
			t.Fatal(err, got.Status)
		}
		m.ranIs(strings.Fields(test.ran)...)
		reported := test.handle == "c0" && test.ran == "c0 c1 c1"
		if noted := strings.Contains(got.notes, "earlier call"); noted != reported {
			t.Errorf("%s: notes %q", test.handle, got.notes)
		}
	}
	if b.outputs("c0") != "done\n" {
		t.Errorf("it shows %q", b.outputs("c0"))
	}
}
