package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	must(t, err)
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
	must(t, q.Input(t.Context(), holder, contract.Input{Text: "done"}))
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
	must(t, err)
	if x = read(t, q.journal, id); x.Status != contract.StatusWaitingForInput {
		t.Fatalf("status = %s", x.Status)
	}
	must(t, q.Input(t.Context(), id, contract.Input{Text: "late"}))
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
	must(t, q.kernel.Restart(t.Context(), q.kernel.Status().KernelID))
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

// order is the code of the waiting executions.
func (q *Queue) order() string {
	var names []string
	for _, w := range q.waiting {
		names = append(names, w.Source.(*single).code)
	}
	return strings.Join(names, " ")
}

// unstarted is a queue that runs nothing.
func unstarted(t *testing.T) *Queue {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	j, err := journal.Open(journal.Config{Dir: t.TempDir(), Log: log})
	must(t, err)
	return New(Config{Journal: j, Log: log})
}

// add makes an execution wait. Its code is its name.
func (q *Queue) add(t *testing.T, name, caller string) {
	t.Helper()
	s := contract.Submit{RequestID: name, Code: name} // Submit checks more, which needs a kernel
	record, err := q.journal.Create(s)
	must(t, err)
	q.addLocked(&waiter{Source: &single{record, s.Code}, caller: caller, single: record})
}

// waiting is an execution that is not on disk.
func waiting(caller, code string) *waiter {
	return &waiter{Source: &single{code: code}, caller: caller, single: &journal.Record{}}
}

func TestCallersTakeTurns(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	for _, name := range []string{"a1", "a2", "a3", "b1", "c1", "b2"} {
		q.add(t, name, name[:1])
	}
	if got := q.order(); got != "a1 b1 c1 a2 b2 a3" {
		t.Errorf("the order is %s", got)
	}
	for n, w := range q.waiting {
		if got := w.single.Snapshot().QueuePosition; got != n {
			t.Errorf("number %d has position %d", n, got)
		}
	}
	q.next()
	q.add(t, "d1", "d")
	if got := q.order(); got != "b1 c1 a2 d1 b2 a3" {
		t.Errorf("with a new caller the order is %s", got)
	}
}

func TestACallerWithManyExecutionsKeepsNoOtherOut(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	add := func(caller string) { q.waiting = append(q.waiting, waiting(caller, "x")) }
	for n := range 64 {
		if q.fullLocked("greedy", 1, true) != nil {
			t.Fatalf("full at %d", n)
		}
		add("greedy")
	}
	if q.fullLocked("greedy", 1, true) == nil {
		t.Error("a 65th execution of the caller that fills the queue is accepted")
	}
	for n := range 64 {
		caller := fmt.Sprint("modest ", n)
		if q.fullLocked(caller, 1, true) != nil {
			t.Fatalf("%s is kept out", caller)
		}
		add(caller)
		if q.fullLocked(caller, 1, true) == nil {
			t.Fatalf("%s gets a second place", caller)
		}
	}
	if q.fullLocked("one more", 1, true) == nil {
		t.Error("the queue has no bound")
	}
}

// runTurns runs n executions and counts them by caller. Each time that one has begun, submit
// may make others wait, and gets how many executions of each caller wait or run.
func (q *Queue) runTurns(n int, submit func(waiting map[string]int)) map[string]int {
	count := map[string]int{}
	for range n {
		w := q.next()
		count[w.caller]++
		waiting := map[string]int{w.caller: 1}
		for _, p := range q.waiting {
			waiting[p.caller]++
		}
		submit(waiting)
		w.single.Finish(contract.StatusSucceeded, "", 0)
		q.yield()
	}
	return count
}

// A caller that waits for each answer before it submits again is always late: the next run has
// begun meanwhile. It must not lose its turn by that.
func TestCallersWithOneCallGetAsManyTurnsAsThoseWithMany(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]map[string]int{
		"one, two and many": {"one": 1, "two": 2, "many": 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := unstarted(t)
			id := 0
			fill := func(waiting map[string]int) {
				for _, caller := range slices.Sorted(maps.Keys(ahead)) {
					for n := waiting[caller]; n < ahead[caller]; n++ {
						q.add(t, fmt.Sprint(caller, id), caller)
						id++
					}
				}
			}
			fill(nil)
			const rounds = 40
			for caller, n := range q.runTurns(rounds*len(ahead), fill) {
				if n < rounds-1 || n > rounds+1 {
					t.Errorf("%s, which has up to %d calls, has %d of %d turns", caller, ahead[caller], n, rounds)
				}
			}
		})
	}
}

// A caller's later runs move up when some before them are cancelled.
func TestACancelledRunLeavesNoGapInItsCallersTurns(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	for _, name := range []string{"a1", "a2", "a3", "b1", "b2", "b3", "c1"} {
		q.add(t, name, name[:1])
	}
	for _, w := range slices.Clone(q.waiting) {
		if code := w.Source.(*single).code; code == "b1" || code == "b2" {
			q.cancel(w.single.ID)
		}
	}
	if got := q.order(); got != "a1 c1 b3 a2 a3" {
		t.Errorf("after b1 and b2 were cancelled the order is %s", got)
	}
	q.add(t, "b4", "b")
	if got := q.order(); got != "a1 c1 b3 a2 b4 a3" {
		t.Errorf("with one run more the order is %s", got)
	}
}
