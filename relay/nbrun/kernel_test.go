package nbrun

import (
	"errors"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestAnInterruptFromOutsideStopsTheRunAndTheNextCallContinues(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+"\nimport time\nif open('ran').read().count('c1') == 1: time.sleep(60)"), src(says("c2")))
		got := b.reach(m, b.spec(), vm, "c1")
		if _, err := m.Interrupt(t.Context(), got.Current.Last.ExecutionID); err != nil {
			t.Fatal(err)
		}
		got = b.advance(b.spec(), vm, long)
		got.cellsAre(t, "c0:succeeded c1:interrupted c2:not_run")
		if got.Status() != StatusInterrupted || !got.CanContinue {
			t.Fatalf("%v %s", got.err, got.Status())
		}
		got = b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c1", "c2")
		if notes := strings.Join(got.Run.Notes, "\n"); !strings.Contains(notes, "cell 1 (id c1), which was interrupted, runs again from its start") {
			t.Errorf("notes %q", notes)
		}
	})
}

// A cell that kills its kernel fails, and nothing runs a second time.
func TestACellThatKillsItsKernelFails(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := start(t, oldStack(t), t.TempDir())
	b := write(t, src(says("c0")), src(says("c1")+"\nimport os; os.kill(os.getpid(), 9)"), src(says("c2")))
	s := b.spec()
	s.OnNewKernel, s.OnError = Rerun, ContinueAfter
	got := b.finish(s, m, StatusKernelDied)
	got.cellsAre(t, "c0:succeeded c1:kernel_died c2:not_run")
	m.ranIs("c0", "c1")
	if got.CanContinue || got.Run.cell("c2").Why == "" {
		t.Errorf("can continue %v, why %q", got.CanContinue, got.Run.cell("c2").Why)
	}
}

// The kernel is restarted from outside: the run stops, and starts again only if asked.
func TestInANewKernelTheRunStopsUnlessAskedToStartAgain(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")))
		s := b.spec()
		b.reach(m, s, vm, "c1")
		m.restart()
		for range 2 {
			if got := b.advance(s, vm, long); got.err != nil || got.Status() != StatusNewKernel || !got.CanContinue {
				t.Fatalf("%v %s %s %q", got.err, got.Status(), got.cells(), got.Outcome.Notes)
			}
		}
		m.ranIs("c0", "c1")
		m.touch("go")
		s.OnNewKernel = Rerun
		b.finish(s, vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c0", "c1", "c2")
	})
}

// The answer to the job was lost, and another VM answers now: no cell runs there unasked.
func TestAJobThatMayHaveRunOnAnotherVMIsNotRepeatedUnasked(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")))
		vm.answer = func(contract.Job, error) (contract.Job, error) { return contract.Job{}, errCut }
		if got := b.advance(b.spec(), vm, long); !errors.Is(got.err, errCut) {
			t.Fatalf("%v %s", got.err, got.Status())
		}
		vm.answer, vm.before = nil, func() error { return &contract.Error{Code: contract.CodeNewInstance} }
		if got := b.advance(b.spec(), vm, long); got.err != nil || got.Status() != StatusNewKernel {
			t.Errorf("%v %s", got.err, got.Status())
		}
	})
}

// The kernel is replaced before the job arrives, in a run whose cells ran in an earlier kernel too:
// nothing runs in the wrong kernel, and no cell twice in one.
func TestAKernelReplacedBeforeTheJobArrivesRunsNoCellTwice(t *testing.T) {
	tier.Long(t)
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")))
		s := b.spec()
		s.OnNewKernel = Rerun
		b.reach(m, s, vm, "c1")
		m.restart()
		m.touch("go")
		left := 2
		vm.before = func() error {
			if left--; left >= 0 {
				m.restart()
			}
			return nil
		}
		if got := b.advance(s, vm, long); got.err != nil || !got.CanContinue { // a call starts the run again once
			t.Fatalf("%v %+v", got.err, got.Outcome)
		}
		b.finish(s, vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c0", "c1", "c2")
		if left >= 0 {
			t.Errorf("%d jobs too few were submitted", left+1)
		}
	})
}

// Another VM answers before the end of the cells was read: none of them counts as not run. When the
// address leads back, the run goes on where it was.
func TestCellsOfAReplacedVMAreLostUntilItAnswersAgain(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		other := start(t, oldStack(t), t.TempDir())
		b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")+"\nprint('out')"))
		b.reach(m, b.spec(), vm, "c1")
		vm.VM = other
		for range 2 {
			got := b.advance(b.spec(), vm, long)
			if got.err != nil || got.Status() != StatusNewKernel || got.cells() != "c0:succeeded c1:lost c2:lost" {
				t.Fatalf("%v %s %s", got.err, got.Status(), got.cells())
			}
		}
		other.ranIs()
		m.touch("go")
		vm.VM = m
		got := b.finish(b.spec(), vm, StatusSucceeded)
		if got.cells() != "c0:succeeded c1:succeeded c2:succeeded" || b.outputs("c2") != "out\n" {
			t.Errorf("%s %q", got.cells(), b.outputs("c2"))
		}
		m.ranIs("c0", "c1", "c2")
	})
}

// A single cell whose VM was replaced is lost, and runs on the new VM only when it is asked for again.
func TestACellOfAReplacedVMIsLost(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		other := start(t, oldStack(t), t.TempDir())
		b := write(t, src(says("c0")+slow))
		b.beginCell(m, "c0")
		vm.VM = other
		_, err := b.runCell(vm, "c0", long)
		if !errors.Is(err, ErrCellLost) {
			t.Errorf("on another VM: %v", err)
		}
		other.ranIs()
		other.touch("go")
		if got, err := b.runCell(vm, "c0", long); err != nil || got.Status != contract.StatusSucceeded {
			t.Errorf("asked for again: %v %s", err, got.Status)
		}
		other.ranIs("c0")
		m.touch("go")
	})
}

// instance is a VM that only says which one it is.
type instance struct {
	VM
	id string
}

func (i instance) InstanceID() string { return i.id }

// What the VM itself said to be lost stays so when it answers again: no end of it is read any more.
func TestACellThatTheVMLostStaysLostWhenItAnswersAgain(t *testing.T) {
	left := &JobRecord{Steps: []Step{{Cell: 1}, {Cell: 2}, {Cell: 3}}}
	left.InstanceID, left.Entry = "vm", 1
	lost := func(key int, execution string) CellRecord {
		return CellRecord{Key: key, Status: CellLost, Last: &Attempt{ExecutionID: execution, Status: contract.StatusLost}}
	}
	record := &Record{Run: RunRecord{Status: StatusNewKernel, Job: left, Plan: []CellRecord{lost(1, "e1"), lost(2, "e2"), lost(3, "")}}}
	a := &advance{Run: &Run{record: record, run: &record.Run}, vm: instance{id: "vm"}}
	if !a.comeBack("kernel") {
		t.Fatal("the VM is not recognised")
	}
	for i, want := range []CellStatus{CellLost, CellRunning, CellNotRun} {
		if got := record.Run.Plan[i].Status; got != want {
			t.Errorf("cell %d is %s, want %s", i+1, got, want)
		}
	}
}
