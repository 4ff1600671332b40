package nbrun

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// slow waits until the test writes the file "go" into the working directory.
const slow = "\nimport os, time\nwhile not os.path.exists('go'): time.sleep(.01)"

// tooLate lets a cell start just before it is to be cancelled.
type tooLate struct {
	VM
	start func()
	once  sync.Once
}

func (v *tooLate) CancelQueued(ctx context.Context, id string) (contract.Execution, error) {
	v.once.Do(v.start)
	return v.VM.CancelQueued(ctx, id)
}

func (v *tooLate) Interrupt(ctx context.Context, id string) (contract.Execution, error) {
	v.once.Do(v.start)
	return v.VM.Interrupt(ctx, id)
}

func TestACellThatStartsWhileItIsToBeCancelledRunsOnce(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+slow), src(says("c1")+strings.ReplaceAll(slow, "'go'", "'on'")), src(says("c2")))
	b.reach(m, b.spec(), m, "c0")
	b.rewrite(src(says("c0")+slow), src(says("c1")+strings.ReplaceAll(slow, "'go'", "'on'")), src(says("edited")))
	vm := &tooLate{VM: m}
	vm.start = func() { // the cancel of c2, the last one, comes first
		m.touch("go")
		for len(m.ran()) < 2 {
			if t.Context().Err() != nil {
				return
			}
		}
	}
	b.advance(b.spec(), vm, 300*time.Millisecond)
	m.touch("on")
	b.finish(b.spec(), vm, StatusSucceeded)
	m.ranIs("c0", "c1", "edited")
}

func TestCellsEditedWhileQueuedRunWithTheirNewSource(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		before := []src{src(says("c0")), src(says("c1") + slow), src(says("c2")), src(says("c3"))}
		b := write(t, before...)
		b.reach(m, b.spec(), vm, "c1")
		before[2], before[3] = src(says("edited")+"\nprint('new')"), before[3]+"\n'also'"
		b.rewrite(before...)
		b.advance(b.spec(), vm, 300*time.Millisecond)
		m.touch("go")
		b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "edited", "c3")
		if b.outputs("c2") != "new\n" || b.outputs("c3") != "'also'" {
			t.Errorf("outputs %q, %q", b.outputs("c2"), b.outputs("c3"))
		}
	})
}

func TestOutputsOfACellEditedWhileItRanAreNotInTheNotebook(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow+"\nprint('old')"), src(says("c2")))
		b.reach(m, b.spec(), vm, "c1")
		b.rewrite(src(says("c0")+"#"), "print('new')", src(says("c2")))
		m.touch("go")
		got := b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c2")
		if text := b.outputs("c1"); text != "" {
			t.Errorf("the edited cell shows %q", text)
		}
		if notes := strings.Join(got.Outcome.Notes, "\n"); !strings.Contains(notes, "cell 0 (c0) was edited after it had run") || !strings.Contains(notes, "cell 1 (c1) was edited while it ran") {
			t.Errorf("notes %q", notes)
		}
		if state := got.Record.State("c1", "print('new')"); state != Dirty {
			t.Errorf("its state is %s", state)
		}
	})
}

func TestCellsInsertedDeletedAndMovedMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")), src(says("c3")), src(says("c4")))
		b.reach(m, b.spec(), vm, "c1")
		b.rewriteCells(
			cellJSON("above", src(says("above"))), cellJSON("c0", src(says("c0"))), cellJSON("c1", src(says("c1")+slow)),
			cellJSON("c4", src(says("c4"))), cellJSON("new", src(says("new"))), cellJSON("c2", src(says("c2"))),
		)
		b.advance(b.spec(), vm, 300*time.Millisecond)
		m.touch("go")
		got := b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c4", "new", "c2")
		if notes := strings.Join(got.Run.Notes, "\n"); !strings.Contains(notes, "above cells that have run") {
			t.Errorf("notes %q", notes)
		}
		if why := got.Run.cell("c3").Why; !strings.Contains(why, "deleted") {
			t.Errorf("the deleted cell: %q", why)
		}
	})
}

func TestARunMayRefuseEdits(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")))
	s := b.spec()
	s.OnChange = RefuseChanged
	b.reach(m, s, m, "c1")
	b.rewrite(src(says("c0")), src(says("c1")+slow), src(says("edited")))
	got := b.advance(s, m, 300*time.Millisecond)
	if !errors.Is(got.err, ErrChanged) || !got.CanContinue {
		t.Fatalf("%v %s", got.err, got.Status())
	}
	m.touch("go")
	s.OnChange = ContinueChanged
	b.advance(s, m, long)
}

func TestARunMayStartAgainAfterEdits(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")))
	s := b.spec()
	s.OnChange = RestartChanged
	b.reach(m, s, m, "c1")
	b.rewrite(src(says("c0")), src(says("edited")), src(says("c2")))
	b.finish(s, m, StatusSucceeded)
	m.ranIs("c0", "c1", "c0", "edited", "c2")
}

func TestOtherArgumentsReplaceAnUnfinishedRun(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")))
	b.reach(m, b.spec(), m, "c1")
	s := b.spec()
	s.Cells = "c2"
	got := b.finish(s, m, StatusSucceeded)
	got.cellsAre(t, "c2:succeeded")
	m.ranIs("c0", "c1", "c2")
	if notes := strings.Join(got.Outcome.Notes, ""); !strings.Contains(notes, "is replaced: 1 of 3 cells were done") {
		t.Errorf("notes %q", notes)
	}
}

// Nothing would interrupt such a cell later: the new run does not know its request_id.
func TestAReplacedRunsUnansweredCellIsInterruptedToo(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")+slow), src(says("c1")))
		vm.answer = func(contract.Execution, error) (contract.Execution, error) { return contract.Execution{}, errCut }
		if got := b.advance(b.spec(), vm, long); !errors.Is(got.err, errCut) {
			t.Fatalf("%v %s", got.err, got.cells())
		}
		vm.answer = nil
		s := b.spec()
		s.Cells = "c1"
		b.finish(s, vm, StatusSucceeded)
	})
}
