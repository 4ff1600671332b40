package nbrun

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestAnInterruptFromOutsideStopsTheRunAndTheNextCallContinues(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+"\nimport time\nif open('ran').read().count('c1') == 1: time.sleep(60)"), src(says("c2")))
		got := b.reach(m, b.spec(), vm, "c1")
		if _, err := m.Interrupt(t.Context(), got.Current.Last().ExecutionID); err != nil {
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

func TestARunWaitsForInput(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, "name = input('Who? ')", "print(name)")
		got := b.advance(b.spec(), vm, long)
		if got.err != nil || got.Status() != StatusWaitingForInput || got.Prompt == nil || got.Prompt.Prompt != "Who? " {
			t.Fatalf("%v %s %+v", got.err, got.Status(), got.Prompt)
		}
		if again := b.advance(b.spec(), vm, long); again.Status() != StatusWaitingForInput || again.Prompt == nil {
			t.Fatalf("again: %v %s %+v", again.err, again.Status(), again.Prompt)
		}
		if _, err := m.Input(t.Context(), got.Execution.ExecutionID, contract.Input{Text: "Ada", Offset: &got.Prompt.Offset}); err != nil {
			t.Fatal(err)
		}
		b.finish(b.spec(), vm, StatusSucceeded)
		if b.outputs("c1") != "Ada\n" {
			t.Errorf("it shows %q", b.outputs("c1"))
		}
	})
}

// The VM's list of runs names the notebook and the cell.
func TestACellsExecutionIsListedWithItsName(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, "1", "2")
	b.finish(b.spec(), m, StatusSucceeded)
	list, err := m.List(t.Context(), 2)
	if err != nil || len(list.Executions) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, x := range list.Executions {
		if want := fmt.Sprintf("%s cell %d", filepath.Base(b.path), 1-i); x.SourceName != want {
			t.Errorf("%q, want %q", x.SourceName, want)
		}
	}
}

func TestARestartBeforeTheRunHappensOnce(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	before := m.kernelID()
	b := write(t, src(says("c0")), src(says("c1")+"\nimport time; time.sleep(.5)"))
	s := b.spec()
	s.Restart = true
	b.advance(s, m, 250*time.Millisecond)
	during := m.kernelID()
	b.finish(s, m, StatusSucceeded)
	if during == before || m.kernelID() != during {
		t.Errorf("kernels %s, %s, %s", before, during, m.kernelID())
	}
	m.ranIs("c0", "c1")
}

func TestOnANewVMTheRunStartsAgain(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	old, dir := start(t, oldStack(t), t.TempDir()), t.TempDir()
	b := write(t, src(says("c0")), src(says("c1")+"\nimport time; time.sleep(60 if '"+dir+"' not in __import__('os').getcwd() else 0)"), src(says("c2")))
	s := b.spec()
	s.OnNewKernel = Rerun
	b.reach(old, s, old, "c1")
	old.Kill()
	again := start(t, oldStack(t), dir)
	got := b.finish(s, again, StatusSucceeded)
	old.ranIs("c0", "c1")
	again.ranIs("c0", "c1", "c2")
	if attempts := got.Run.cell("c1").Attempts; len(attempts) != 2 || attempts[0].Status != contract.StatusLost {
		t.Errorf("attempts %+v", attempts)
	}
}

func TestAnExecutorThatWasKilledAndStartedAgainContinues(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	old := start(t, oldStack(t), dir)
	b := write(t, src(says("c0")), src(says("c1")+"\nimport time\nif open('ran').read().count('c1') == 1: time.sleep(60)"), src(says("c2")))
	b.reach(old, b.spec(), old, "c1")
	old.Kill()
	again := start(t, oldStack(t), dir)
	b.finish(b.spec(), again, StatusNewKernel)
	s := b.spec()
	s.OnNewKernel = Rerun
	got := b.finish(s, again, StatusSucceeded)
	if notes := strings.Join(got.Run.Notes, "\n"); !strings.Contains(notes, "had run and run again: 0, 1") {
		t.Errorf("notes %q", notes)
	}
	again.ranIs("c0", "c1", "c0", "c1", "c2")
}

// A command for a person waits on while another run waits for input, without asking the VM again
// and again; a tool's call returns and says so.
func TestARunBehindOneThatWaitsForInput(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, "1")
	other, err := m.Submit(t.Context(), contract.Submit{Code: "input('first? ')", Unstored: true, BehindInput: true, WaitSeconds: 10})
	if err != nil {
		t.Fatal(err)
	}
	got := b.advance(b.spec(), m, long)
	if got.Behind == nil || got.Behind.ExecutionID != other.ExecutionID || !got.CanContinue {
		t.Fatalf("%+v, %v", got.Outcome, got.err)
	}
	vm := &faults{VM: m}
	vm.looked = func(j contract.Job) {
		if client.WaitsForInput(j.Behind) != nil { // seen: now somebody answers
			if _, err := m.Input(t.Context(), other.ExecutionID, contract.Input{Text: "x"}); err != nil {
				t.Error(err)
			}
		}
	}
	got = b.advance(b.spec(), vm, long, func(o *Options) { o.BehindInput = true })
	if got.err != nil || got.Status() != StatusSucceeded || vm.looks > 8 {
		t.Errorf("%s, %v, after %d looks", got.Status(), got.err, vm.looks)
	}
}

// A cell that kills its kernel fails, and nothing runs a second time.
func TestACellThatKillsItsKernelFails(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for _, onNewKernel := range []OnNewKernel{StopOnNewKernel, Rerun} {
		m := start(t, oldStack(t), t.TempDir())
		b := write(t, src(says("c0")), src(says("c1")+"\nimport os; os.kill(os.getpid(), 9)"), src(says("c2")))
		s := b.spec()
		s.OnNewKernel, s.OnError = onNewKernel, ContinueAfter
		got := b.finish(s, m, StatusKernelDied)
		got.cellsAre(t, "c0:succeeded c1:kernel_died c2:not_run")
		m.ranIs("c0", "c1")
		if got.CanContinue || got.Run.cell("c2").Why == "" {
			t.Errorf("can continue %v, why %q", got.CanContinue, got.Run.cell("c2").Why)
		}
	}
}

// The kernel is restarted from outside: the run stops, and starts again only if asked.
func TestInANewKernelTheRunStopsUnlessAskedToStartAgain(t *testing.T) {
	tier.Long(t)
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

// An executor that calls itself a new one with each answer ends the call: a run starts again at
// most once a call.
func TestAnExecutorThatIsAlwaysNewEndsTheCall(t *testing.T) {
	t.Parallel()
	b := write(t, "1")
	vm := &faults{VM: &enemy{}, before: func() error { return &contract.Error{Code: contract.CodeNewInstance} }}
	s := b.spec()
	s.OnNewKernel = Rerun
	began := time.Now()
	got := b.advance(s, vm, long)
	if !refusedAs(got.err, contract.CodeNewInstance) || !got.CanContinue || time.Since(began) > long/2 || got.cells() != "c0:not_run" {
		t.Errorf("after %s: %v %+v", time.Since(began), got.err, got.Outcome)
	}
}

// A cell may run for its own time at most; that ends the run whatever on_error says.
func TestACellsTimeEndsTheRun(t *testing.T) {
	tier.Long(t)
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src("timeout=1| "+says("c1")+"\nimport time; time.sleep(60)"), src(says("c2")))
		s := b.spec()
		s.OnError = ContinueAfter
		got := b.finish(s, vm, StatusFailed)
		got.cellsAre(t, "c0:succeeded c1:timed_out c2:not_run")
		m.ranIs("c0", "c1")
	})
}
