package execution

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestRunKeepsEveryKindOfOutputInOrder(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		x := q.run("import sys\nfrom IPython.display import display\nprint('a'); print('b', file=sys.stderr)\nh = display({'k': 1}, display_id='d1')\nh.update('new')\nfrom IPython.display import clear_output\nclear_output(wait=True)\n'value'")
		wantStatus(t, x, contract.StatusSucceeded)
		var types []string
		for i, e := range x.Events {
			types = append(types, string(e.Type))
			if e.Offset != int64(i) {
				t.Errorf("event %d has offset %d", i, e.Offset)
			}
		}
		got := strings.Join(types, " ")
		if !strings.HasSuffix(got, "display_data update_display_data clear_output execute_result") {
			t.Errorf("events: %s", got)
		}
		if text(x, contract.Stdout) != "a\n" || text(x, contract.Stderr) != "b\n" || !x.End || x.ExecutionCount != 1 {
			t.Errorf("execution = %+v", x)
		}
	})
}

func TestTheQueueContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		first, second := q.submit("1/0", 0), q.submit("'still runs'", 0)
		x := q.settle(first)
		wantStatus(t, x, contract.StatusFailed)
		if x.Error == nil || x.Error.EName != "ZeroDivisionError" || len(x.Error.Traceback) == 0 {
			t.Errorf("error = %+v", x.Error)
		}
		x = q.run("class R:\n    def __repr__(self): raise KeyError('shown')\nR()") // fails from IPython 9 on
		if x.Error != nil && x.Error.EName != "KeyError" || x.Events[0].EName != "KeyError" {
			t.Errorf("the display of a value raised %+v, shown as %+v", x.Error, x.Events)
		}
		wantStatus(t, q.settle(second), contract.StatusSucceeded)
	})
}

func TestForgottenRequestIDRunsNothing(t *testing.T) {
	t.Parallel()
	const kept = 3
	q := newBench(t, stacks.Old(t), settings{keep: journal.Limits{Kept: kept}})
	q.run("n = 0")
	first := contract.Submit{RequestID: "the-first", Code: "n += 1"}
	id, err := q.Submit("", first)
	if err != nil {
		t.Fatal(err)
	}
	q.settle(id)
	for range kept + 1 {
		q.run("pass")
	}
	if again, err := q.Submit("", first); err != nil || again != id {
		t.Fatalf("again: %q, %v; want %q", again, err, id)
	}
	if _, err := q.Interrupt(t.Context(), id); !errors.Is(err, ErrFinished) {
		t.Errorf("interrupting it: %v", err)
	}
	if got := text(q.run("print(n)"), contract.Stdout); got != "1\n" {
		t.Errorf("n = %s", got)
	}
}

func TestSubmitIsRefused(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	low := false
	q := newBench(t, stacks.Old(t), settings{
		limits: Limits{Queue: 2},
		memory: func() (uint64, uint64, error) {
			if low {
				return 0, 400 << 20, nil
			}
			return 0, 8 << 30, nil
		},
	})
	low, q.memory.at = true, time.Time{}
	if _, err := q.Submit("", contract.Submit{RequestID: "x", Code: "1"}); !errors.Is(err, ErrLowMemory) {
		t.Errorf("low memory: %v", err)
	}
	low, q.memory.at = false, time.Time{}
	holder := q.submit("input()", 0)
	wantStatus(t, q.settle(holder), contract.StatusWaitingForInput)
	first, second := q.submit("1", 0), q.submit("2", 0)
	if _, err := q.Submit("", contract.Submit{RequestID: "x", Code: "3"}); !errors.Is(err, ErrQueueFull) {
		t.Errorf("full queue: %v", err)
	}
	x, err := q.journal.Read(t.Context(), second, journal.ReadRequest{})
	if err != nil || x.QueuePosition != 2 {
		t.Errorf("position = %d, %v", x.QueuePosition, err)
	}
	if x, err = q.Interrupt(t.Context(), first); err != nil || x.Status != contract.StatusCancelled {
		t.Errorf("cancel: %+v, %v", x, err)
	}
	if err := q.Input(t.Context(), holder, contract.Input{Text: "done"}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, q.settle(second), contract.StatusSucceeded)
}

func TestDeadlineIsPausedWhileWaitingForInput(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	id := q.submit("x = input('? ')\nprint(x)", 60)
	x := q.settle(id)
	wantStatus(t, x, contract.StatusWaitingForInput)
	if last := x.Events[len(x.Events)-1]; last.Type != contract.EventInputRequest || last.Prompt != "? " {
		t.Errorf("last event = %+v", last)
	}
	err := q.send(t.Context(), id, func(r *runner) error {
		r.tick(time.Now().Add(2 * time.Minute)) // past the deadline
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if x = read(t, q.journal, id); x.Status != contract.StatusWaitingForInput {
		t.Fatalf("status = %s", x.Status)
	}
	if err := q.Input(t.Context(), id, contract.Input{Text: "late"}); err != nil {
		t.Fatal(err)
	}
	x = q.settle(id)
	wantStatus(t, x, contract.StatusSucceeded)
	if text(x, contract.Stdout) != "late\n" {
		t.Errorf("stdout = %q", text(x, contract.Stdout))
	}
}

func TestReasonSaysThatCodeDoesNotYield(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{ownKernel: true})
	id := q.submit("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: time.sleep(.1)", 60)
	waiting := q.submit("'after'", 0)
	q.awaitEvent(id, 0)
	for _, later := range []time.Duration{2 * time.Minute, 2*time.Minute + yieldTime} { // the deadline, then the end of yieldTime
		if err := q.send(t.Context(), id, func(r *runner) error { r.tick(time.Now().Add(later)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	x := q.settle(id)
	wantStatus(t, x, contract.StatusTimedOut)
	if !strings.Contains(x.Reason, "restart_kernel") {
		t.Errorf("reason = %q", x.Reason)
	}
	if err := q.WithIdleKernel(t.Context(), doNothing); !errors.Is(err, ErrKernelBusy) {
		t.Errorf("WithIdleKernel while it still has the kernel: %v", err)
	}
	if _, err := q.Interrupt(t.Context(), id); err != nil {
		t.Errorf("interrupting it once more: %v", err)
	}
	if err := q.kernel.Restart(t.Context(), q.kernel.Status().KernelID); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, q.settle(waiting), contract.StatusCancelled)
	wantStatus(t, q.run("1"), contract.StatusSucceeded)
}

// Python can lose a KeyboardInterrupt. Another interrupt then ends the run, but one that comes at once
// does not: it may be the same request once more, and would disturb what the code does last.
func TestAnInterruptCanBeRepeated(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	id := q.submit("import time\nfor n in range(3):\n  print(n, flush=True)\n  try:\n    while True: time.sleep(.01)\n  except KeyboardInterrupt: pass\nraise KeyboardInterrupt", 60)
	q.awaitEvent(id, 0)
	began := time.Now()
	asked := 0
	for err := error(nil); !errors.Is(err, ErrFinished); asked++ {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = q.Interrupt(ctx, id)
		cancel()
	}
	wantStatus(t, q.settle(id), contract.StatusInterrupted)
	if took := time.Since(began); took < 2*repeatTime {
		t.Errorf("%d calls within %s sent three interrupts", asked, took)
	}
}

func doNothing(context.Context, *kernel.Kernel) error { return nil }

func TestKernelDeathEndsTheRunAndTheQueue(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		first := q.run("1")
		dying := q.submit("print('before', flush=True)\nimport os, time\ntime.sleep(.3)\nos.kill(os.getpid(), 9)", 0)
		waiting := q.submit("'never'", 0)
		x := q.settle(dying)
		wantStatus(t, x, contract.StatusKernelDied)
		if !strings.Contains(x.Reason, "SIGKILL") || text(x, contract.Stdout) != "before\n" {
			t.Errorf("reason %q, stdout %q", x.Reason, text(x, contract.Stdout))
		}
		cancelled := q.settle(waiting)
		wantStatus(t, cancelled, contract.StatusCancelled)
		// So what is submitted while the dead kernel's output is read is not cancelled.
		if cancelled.FinishedAt.After(*x.FinishedAt) {
			t.Errorf("the queue was emptied at %s, after the dead kernel's output was read at %s", cancelled.FinishedAt, x.FinishedAt)
		}
		next := q.run("2")
		wantStatus(t, next, contract.StatusSucceeded)
		if next.KernelID == first.KernelID {
			t.Error("the new kernel has the id of the old one")
		}
	})
}
