package execution

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

// after submits code as request, behind the one that follows names; "~" before its name
// stands for after_any.
func (b *bench) after(request, follows, code string) string {
	b.t.Helper()
	name, anyEnd := strings.CutPrefix(follows, "~")
	s := contract.Submit{RequestID: request, Code: code, AfterRequestID: name, AfterAny: anyEnd}
	id, err := b.Submit("", s)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// wantCancelled checks that the execution never ran, and that its reason has all parts.
func wantCancelled(t *testing.T, x contract.Execution, parts ...string) {
	t.Helper()
	wantStatus(t, x, contract.StatusCancelled)
	if x.StartedAt != nil || x.KernelID != "" || x.FinishedAt == nil || x.Behind != nil || x.QueuePosition != 0 {
		t.Errorf("the cancelled one: %+v", x)
	}
	for _, part := range append(parts, "it never ran") {
		if !strings.Contains(x.Reason, part) {
			t.Errorf("the reason is %q, want it to contain %q", x.Reason, part)
		}
	}
}

// A chain of cells, every end of the one that a cell follows, and both conditions.
func TestARunStartsOnlyAfterTheOneThatItFollows(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		holder := q.submit("print('on')\ninput()\nran = []", 0)
		q.settle(holder)
		ids := map[string]string{}
		for _, c := range []struct{ name, follows, code string }{
			{"ok", "r1", "ran.append('ok')"},
			{"fails", "ok", "ran.append('fails'); 1/0"},
			{"needs it", "fails", "ran.append('needs it')"},
			{"needs that", "needs-it", "ran.append('needs that')"},
			{"any of a failed one", "~fails", "ran.append('any of a failed one')"},
			{"any of a cancelled one", "~needs-it", "ran.append('any of a cancelled one')"},
			{"any of that", "~any-of-a-cancelled-one", "ran.append('any of that')"},
			{"exits", "~any-of-a-failed-one", "ran.append('exits'); raise SystemExit"},
			{"unknown", "never-submitted", "ran.append('unknown')"},
			{"any of an unknown one", "~never-submitted", "ran.append('any of an unknown one')"},
		} {
			ids[c.name] = q.after(strings.ReplaceAll(c.name, " ", "-"), c.follows, c.code)
		}
		for n, name := range []string{"ok", "fails", "needs it", "needs that"} {
			if x := read(t, q.journal, ids[name]); x.Status != contract.StatusQueued || x.QueuePosition != n+1 || x.Behind == nil || x.Behind.ExecutionID != holder {
				t.Errorf("while the first one runs, %s is %s at %d behind %+v", name, x.Status, x.QueuePosition, x.Behind)
			}
		}
		for _, name := range []string{"unknown", "any of an unknown one"} { // at once
			wantCancelled(t, read(t, q.journal, ids[name]), `"never-submitted"`, "knows no such run")
		}
		if err := q.Input(t.Context(), holder, contract.Input{}); err != nil {
			t.Fatal(err)
		}
		wantCancelled(t, q.settle(ids["needs it"]), ids["fails"], `"fails"`, "its status is failed")
		wantCancelled(t, q.settle(ids["needs that"]), ids["needs it"], `"needs-it"`, "was cancelled")
		wantCancelled(t, q.settle(ids["any of a cancelled one"]), ids["needs it"])
		wantCancelled(t, q.settle(ids["any of that"]), ids["any of a cancelled one"])
		wantStatus(t, q.settle(ids["exits"]), contract.StatusFailed)
		late := q.after("late", "ok", "ran.append('late')")
		wantStatus(t, q.settle(late), contract.StatusSucceeded)
		if got, want := text(q.run("print(*ran, sep=', ')"), contract.Stdout), "ok, fails, any of a failed one, exits, late\n"; got != want {
			t.Errorf("it ran %s", got)
		}
	})
}

// What runs while a chain waits, and what becomes of the chain.
func TestAChainIsCancelledAtOnceWhenItsRunEndsBadly(t *testing.T) {
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	for _, test := range []struct {
		name string
		end  func(id string)
		want contract.Status
	}{
		{"interrupted", func(id string) { q.interruptNow(id) }, contract.StatusInterrupted},
		{"timed_out", func(id string) { q.tickAt(id, 2*time.Minute) }, contract.StatusTimedOut},
	} {
		holder := q.submit("print('on', flush=True)\nimport time\ntime.sleep(3600)", 60)
		q.awaitEvent(holder, 0)
		head := fmt.Sprint("r", q.ids.Load())
		chain := []string{q.after(test.name+"1", head, "1"), q.after(test.name+"2", test.name+"1", "2"), q.after(test.name+"3", test.name+"2", "3")}
		anyEnd := q.after(test.name+"4", "~"+head, "4")
		other := q.submit("5", 0)
		test.end(holder)
		wantStatus(t, q.settle(holder), test.want)
		for _, id := range chain {
			wantCancelled(t, q.settle(id))
		}
		wantStatus(t, q.settle(anyEnd), contract.StatusSucceeded)
		wantStatus(t, q.settle(other), contract.StatusSucceeded)
	}
	t.Run("cancelled", func(t *testing.T) {
		holder := q.submit("input()", 0)
		q.settle(holder)
		first, second := q.after("first", fmt.Sprint("r", q.ids.Load()), "1"), q.after("second", "~first", "2")
		if _, err := q.Interrupt(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		wantCancelled(t, read(t, q.journal, second), first, "was cancelled")
		if err := q.Input(t.Context(), holder, contract.Input{}); err != nil {
			t.Fatal(err)
		}
		q.settle(holder)
	})
	t.Run("does not yield", q.testUnyielding)
}

// testUnyielding: a run that has timed out but keeps the kernel has ended, so that what
// needs its success is cancelled, and what needs its end waits for the kernel.
func (b *bench) testUnyielding(t *testing.T) {
	id := b.submit("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: time.sleep(.1)", 60)
	head := fmt.Sprint("r", b.ids.Load())
	strict, anyEnd := b.after("strict", head, "1"), b.after("any", "~"+head, "2")
	b.awaitEvent(id, 0)
	b.tickAt(id, 2*time.Minute)
	b.tickAt(id, 2*time.Minute+yieldTime)
	wantStatus(t, b.settle(id), contract.StatusTimedOut)
	wantCancelled(t, read(t, b.journal, strict), id, "timed_out")
	if x := read(t, b.journal, anyEnd); x.Status != contract.StatusQueued || x.Behind == nil || x.Behind.Status != contract.StatusTimedOut {
		t.Errorf("what waits for any end is %s behind %+v", x.Status, x.Behind)
	}
	if err := b.kernel.Restart(t.Context(), b.kernel.Status().KernelID); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, b.settle(anyEnd), contract.StatusCancelled)
	wantCancelled(t, b.settle(b.after("later", "~"+head, "3")), id, "an earlier kernel")
}

func (b *bench) interruptNow(id string) {
	if _, err := b.Interrupt(b.t.Context(), id); err != nil {
		b.t.Fatal(err)
	}
}

// tickAt has the runner do what is due later.
func (b *bench) tickAt(id string, later time.Duration) {
	err := b.send(b.t.Context(), id, func(r *runner) error { r.tick(time.Now().Add(later)); return nil })
	if err != nil && !errors.Is(err, errNotCurrent) {
		b.t.Fatal(err)
	}
}

// Nothing runs after a run whose variables are gone, however that one ended.
func TestARunFollowsNoneOfAnEarlierKernel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	q := newBench(t, stacks.Old(t), settings{ownKernel: true, dir: dir, keep: journal.Limits{Kept: 4}})
	first := q.after("succeeded", "", "x = 1")
	wantStatus(t, q.settle(first), contract.StatusSucceeded)
	q.settle(q.after("failed", "", "1/0"))
	submitted := filepath.Join(t.TempDir(), "all") // nothing of what follows may reach the next kernel
	dying := q.after("died", "succeeded", fmt.Sprintf("print('on', flush=True)\nimport os, time\nwhile not os.path.exists(%q): time.sleep(.01)\nos.kill(os.getpid(), 9)", submitted))
	q.awaitEvent(dying, 0)
	waiting := []string{q.after("w1", "died", "1"), q.after("w2", "~died", "2"), q.after("w3", "w1", "3"), q.after("w4", "", "4"), q.after("w5", "w4", "5")}
	if err := os.WriteFile(submitted, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, q.settle(dying), contract.StatusKernelDied)
	for _, id := range waiting {
		wantStatus(t, q.settle(id), contract.StatusCancelled)
	}
	early := q.after("early", "", "y = 1") // may be submitted while the next kernel starts
	wantStatus(t, q.settle(q.after("follows", "early", "y")), contract.StatusSucceeded)
	wantStatus(t, q.settle(early), contract.StatusSucceeded)
	for n, request := range []string{"succeeded", "~succeeded", "~failed", "~died"} {
		wantCancelled(t, q.settle(q.after(fmt.Sprint("late", n), request, "1")), strings.TrimPrefix(request, "~"), "an earlier kernel, whose variables are gone")
	}
	wantCancelled(t, q.settle(q.after("late-died", "died", "1")), "kernel_died")
	for range 6 { // its folder is deleted
		q.run("pass")
	}
	wantCancelled(t, q.settle(q.after("past", "succeeded", "1")), first, "an earlier kernel")
	wantStatus(t, q.settle(q.after("z1", "", "1")), contract.StatusSucceeded)
	for range 6 {
		q.run("pass")
	}
	wantStatus(t, q.settle(q.after("z2", "z1", "1")), contract.StatusSucceeded) // a tombstone of this kernel's
}

// The next executor knows what ran before it, and runs nothing behind that.
func TestAChainEndsWithTheExecutor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	q := newBench(t, stacks.Old(t), settings{dir: dir})
	done := q.after("done", "", "1")
	q.settle(done)
	holder := q.after("holder", "done", "input()")
	q.settle(holder)
	waiting := []string{q.after("w1", "holder", "1"), q.after("w2", "w1", "2")}
	q.stop()
	wantStatus(t, read(t, q.journal, holder), contract.StatusInterrupted)
	for _, id := range waiting {
		wantStatus(t, read(t, q.journal, id), contract.StatusCancelled)
	}
	again := newBench(t, stacks.Old(t), settings{dir: dir})
	if id := again.after("w1", "holder", "1"); id != waiting[0] {
		t.Errorf("the same submit has another execution: %s", id)
	}
	for n, request := range []string{"done", "~done", "~holder"} {
		wantCancelled(t, again.settle(again.after(fmt.Sprint("n", n), request, "1")), "an earlier kernel")
	}
	wantCancelled(t, again.settle(again.after("n3", "holder", "1")), "interrupted")
}

// A submit whose run is cancelled at once is known as any other.
func TestACancelledFollowerIsSubmittedOnce(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	b := contract.Submit{RequestID: "b", AfterRequestID: "a"}
	if first, again := q.addSubmit(t, "", b), q.addSubmit(t, "", b); first != again || len(q.pending) != 0 {
		t.Errorf("executions %s and %s, %d wait", first, again, len(q.pending))
	}
	q.add(t, "a", "", "b") // no cycle
	if len(q.pending) != 0 {
		t.Error("what follows a cancelled run waits")
	}
	if _, err := q.journal.Submitted(contract.Submit{RequestID: "b", Code: "b"}); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("without after_request_id: %v", err)
	}
}

// Runs that are cancelled as they are submitted are deleted like others: nothing else ends
// here that would have the runner delete them.
func TestRunsThatAreCancelledAtOnceAreForgotten(t *testing.T) {
	t.Parallel()
	const kept = 3
	q := newBench(t, stacks.Old(t), settings{keep: journal.Limits{Kept: kept}})
	for n := range 4 * kept {
		q.after(fmt.Sprint("f", n), "never-submitted", "1")
	}
	for limit := time.After(20 * time.Second); len(q.journal.List(100)) > kept; {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			t.Fatalf("%d executions are kept", len(q.journal.List(100)))
		}
	}
}
