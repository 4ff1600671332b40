package nbrun

import (
	"strings"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

func TestInANewKernelTheRunStartsAgain(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		dies := "import os\nif open('ran').read().count('c1') == 1: os.kill(os.getpid(), 9)"
		b := write(t, src(says("c0")+"\nx = 1"), src(says("c1")+"\n"+dies), src(says("c2")+"\nprint(x)"))
		got := b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c0", "c1", "c2")
		if attempts := got.Run.cell("c1").Attempts; len(attempts) != 2 || attempts[0].Status != contract.StatusKernelDied || attempts[1].KernelID == attempts[0].KernelID {
			t.Errorf("attempts %+v", attempts)
		}
		if b.outputs("c2") != "1\n" || !strings.Contains(strings.Join(got.Outcome.Notes, ""), "starts again") {
			t.Errorf("output %q, notes %q", b.outputs("c2"), got.Outcome.Notes)
		}
	})
}

// The kernel in which the run starts again is replaced before its first cell runs there: what was
// sent runs in the next kernel, and counts there.
func TestAKernelThatRanNothingIsReplacedWithoutAnotherStart(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		first, replaced := m.kernelID(), false
		vm.before = func(s contract.Submit) error {
			second := m.kernelID()
			if replaced || second == first || !strings.Contains(s.Code, "c0") {
				return nil
			}
			replaced = true
			_, err := m.RestartKernel(t.Context(), second)
			return err
		}
		dies := "import os\nif open('ran').read().count('c1') == 1: os.kill(os.getpid(), 9)"
		b := write(t, src(says("c0")+"\nx = 1"), src(says("c1")+"\n"+dies), src(says("c2")+"\nprint(x)"))
		b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c0", "c1", "c2")
		if !replaced || b.outputs("c2") != "1\n" {
			t.Errorf("replaced %t, output %q", replaced, b.outputs("c2"))
		}
	})
}

func TestACellThatEndsTwoKernelsStopsTheRun(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")), src(says("c1")+"\nimport os; os.kill(os.getpid(), 9)"), src(says("c2")))
	got := b.finish(b.spec(), m, StatusKernelDied)
	got.cellsAre(t, "c0:succeeded c1:kernel_died c2:not_run")
	m.ranIs("c0", "c1", "c0", "c1")
	if got.CanContinue || got.Run.cell("c2").Why == "" {
		t.Errorf("can continue %v, why %q", got.CanContinue, got.Run.cell("c2").Why)
	}
}

func TestInANewKernelTheRunMayStop(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")))
		s := b.spec()
		s.OnNewKernel = StopOnNewKernel
		b.reach(m, s, vm, "c1")
		if _, err := m.RestartKernel(t.Context(), m.kernelID()); err != nil {
			t.Fatal(err)
		}
		got := b.advance(s, vm, long)
		if got.err != nil || got.Status() != StatusInterrupted && got.Status() != StatusNewKernel || !got.CanContinue {
			t.Fatalf("%v %s %s %q", got.err, got.Status(), got.cells(), got.Outcome.Notes)
		}
		if got = b.advance(s, vm, long); got.Status() != StatusNewKernel {
			t.Fatalf("again: %v %s %s", got.err, got.Status(), got.cells())
		}
		m.touch("go")
		s.OnNewKernel = Rerun
		b.finish(s, vm, StatusSucceeded)
		if all := strings.Join(m.ran(), " "); !strings.HasSuffix(all, "c0 c1 c2") || strings.Count(all, "c2") != 1 {
			t.Errorf("these ran: %s", all)
		}
	})
}

func TestAnInterruptFromOutsideStopsTheRunAndTheNextCallContinues(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+"\nimport time\nif open('ran').read().count('c1') == 1: time.sleep(60)"), src(says("c2")))
		got := b.reach(m, b.spec(), vm, "c1")
		if _, err := m.Interrupt(t.Context(), got.Current.ExecutionID); err != nil {
			t.Fatal(err)
		}
		got = b.advance(b.spec(), vm, long)
		got.cellsAre(t, "c0:succeeded c1:interrupted c2:not_run")
		if got.Status() != StatusInterrupted || !got.CanContinue {
			t.Fatalf("%v %s", got.err, got.Status())
		}
		b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c1", "c2")
	})
}

func TestACancelledCellStopsTheRun(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+slow), src(says("c1")), src(says("c2")))
	got := b.reach(m, b.spec(), m, "c0")
	if _, err := m.Interrupt(t.Context(), got.Run.Flights[1].ExecutionID); err != nil {
		t.Fatal(err)
	}
	m.touch("go")
	got = b.advance(b.spec(), m, long)
	got.cellsAre(t, "c0:succeeded c1:not_run c2:not_run")
	if got.Status() != StatusInterrupted || !got.CanContinue {
		t.Fatalf("%v %s %q", got.err, got.Status(), got.Outcome.Notes)
	}
	b.finish(b.spec(), m, StatusSucceeded)
	m.ranIs("c0", "c1", "c2")
}

func TestARunWaitsForInput(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, "name = input('Who? ')", "print(name)")
		got := b.advance(b.spec(), vm, long)
		if got.err != nil || got.Status() != StatusWaitingForInput || got.Prompt == nil || got.Prompt.Text != "Who? " || got.Prompt.ExecutionID == "" {
			t.Fatalf("%v %s %+v", got.err, got.Status(), got.Prompt)
		}
		if again := b.advance(b.spec(), vm, long); again.Status() != StatusWaitingForInput || again.Prompt == nil {
			t.Fatalf("again: %v %s %+v", again.err, again.Status(), again.Prompt)
		}
		if _, err := m.Input(t.Context(), got.Prompt.ExecutionID, contract.Input{Text: "Ada", Offset: &got.Prompt.Offset}); err != nil {
			t.Fatal(err)
		}
		b.finish(b.spec(), vm, StatusSucceeded)
		if b.outputs("c1") != "Ada\n" {
			t.Errorf("it shows %q", b.outputs("c1"))
		}
	})
}

func TestARestartBeforeTheRunHappensOnce(t *testing.T) {
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
	t.Parallel()
	old, dir := start(t, oldStack(t), t.TempDir()), t.TempDir()
	b := write(t, src(says("c0")), src(says("c1")+"\nimport time; time.sleep(60 if '"+dir+"' not in __import__('os').getcwd() else 0)"), src(says("c2")))
	b.reach(old, b.spec(), old, "c1")
	old.Kill()
	again := start(t, oldStack(t), dir)
	got := b.finish(b.spec(), again, StatusSucceeded)
	old.ranIs("c0", "c1")
	again.ranIs("c0", "c1", "c2")
	if attempts := got.Run.cell("c1").Attempts; len(attempts) != 2 || attempts[0].Status != contract.StatusLost {
		t.Errorf("attempts %+v", attempts)
	}
}

func TestAnExecutorThatWasKilledAndStartedAgainContinues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := start(t, oldStack(t), dir)
	b := write(t, src(says("c0")), src(says("c1")+"\nimport time\nif open('ran').read().count('c1') == 1: time.sleep(60)"), src(says("c2")))
	b.reach(old, b.spec(), old, "c1")
	old.Kill()
	again := start(t, oldStack(t), dir)
	b.finish(b.spec(), again, StatusSucceeded)
	again.ranIs("c0", "c1", "c0", "c1", "c2")
}

func TestTheRunsOwnTimeIsBounded(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+"\nimport time; time.sleep(60)"), src(says("c2")))
		s := b.spec()
		s.RunTimeout = 3 * time.Second
		got := b.finish(s, vm, StatusTimedOut)
		got.cellsAre(t, "c0:succeeded c1:timed_out c2:not_run")
		m.ranIs("c0", "c1")
		if got.CanContinue || got.Run.cell("c2").Why == "" {
			t.Errorf("can continue %v, why %q", got.CanContinue, got.Run.cell("c2").Why)
		}
	})
}

// A command for a person waits on while another run waits for input, without asking the VM again
// and again; a tool's call returns and says so.
func TestARunBehindOneThatWaitsForInput(t *testing.T) {
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
	vm.read = func(e contract.Execution, err error) (contract.Execution, error) {
		if client.BehindInput(e) != nil { // seen: now somebody answers
			if _, err := m.Input(t.Context(), other.ExecutionID, contract.Input{Text: "x"}); err != nil {
				t.Error(err)
			}
		}
		return e, err
	}
	got = b.advance(b.spec(), vm, long, func(o *Options) { o.BehindInput = true })
	if got.err != nil || got.Status() != StatusSucceeded || vm.reads > 3 {
		t.Errorf("%s, %v, after %d reads", got.Status(), got.err, vm.reads)
	}
}

// A call ends after some new kernels in a row. What ran in the kernels before does not count then,
// either.
func TestAfterManyNewKernelsTheNextCallStartsAgain(t *testing.T) {
	t.Parallel()
	m := start(t, oldStack(t), t.TempDir()) // after five deaths in a row a kernel is given up
	dies := func(handle string) src {
		return src(says(handle) + "\nimport os\nif open('ran').read().count('" + handle + "') == 1: os.kill(os.getpid(), 9)")
	}
	b := write(t, src(says("c0")+"\nx = 1"), dies("c1"), dies("c2"), dies("c3"), dies("c4"), src(says("c5")+"\nx"))
	got := b.advance(b.spec(), m, long)
	if got.err != nil || got.Status() != StatusRunning || !got.CanContinue {
		t.Fatalf("%v, status %s, %s", got.err, got.Status(), got.cells())
	}
	if got.cells() != "c0:not_run c1:not_run c2:not_run c3:not_run c4:not_run c5:not_run" {
		t.Errorf("in the new kernel nothing ran: %s", got.cells())
	}
	b.finish(b.spec(), m, StatusSucceeded)
	m.ranIs(strings.Fields("c0 c1 c0 c1 c2 c0 c1 c2 c3 c0 c1 c2 c3 c4 c0 c1 c2 c3 c4 c5")...)
}

// An executor that calls itself a new one with each answer ends the call.
func TestAnExecutorThatIsAlwaysNewEndsTheCall(t *testing.T) {
	t.Parallel()
	b := write(t, "1")
	vm := &faults{VM: &enemy{}, before: func(contract.Submit) error { return &contract.Error{Code: contract.CodeNewInstance} }}
	began := time.Now()
	got := b.advance(b.spec(), vm, long)
	if got.err != nil || !got.CanContinue || time.Since(began) > long/2 || got.cells() != "c0:not_run" {
		t.Errorf("after %s: %v %+v", time.Since(began), got.err, got.Outcome)
	}
}
