package execution

import (
	"errors"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestLateOutputOfAThreadIsKept(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{ownKernel: true})
	x := q.run("import threading, time\ndef late():\n  time.sleep(.3)\n  print('late', flush=True)\nthreading.Thread(target=late).start()")
	wantStatus(t, x, contract.StatusSucceeded)
	within.Until(t, "the late output has arrived", func() bool {
		x = read(t, q.journal, x.ExecutionID)
		return x.NextOffset > 0
	})
	if text(x, contract.Stdout) != "late\n" {
		t.Errorf("late output = %+v", x.Events)
	}
}

func TestShutdownInterruptsAndCancels(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		running := q.submit("print('on', flush=True)\nwhile True: pass", 0)
		waiting := q.submit("1", 0)
		q.awaitEvent(running, 0)
		q.stop()
		wantStatus(t, q.settle(running), contract.StatusInterrupted)
		wantStatus(t, q.settle(waiting), contract.StatusCancelled)
		if _, err := q.Submit("", contract.Submit{RequestID: "late", Code: "1"}); !errors.Is(err, ErrShuttingDown) {
			t.Errorf("submit after the shutdown: %v", err)
		}
	})
}

func TestRunWithoutAReplyEndsAndFreesTheKernel(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		q.run("kept = 1")
		// ipykernel can't encode a lone surrogate and sends no reply.
		x := q.run("raise ValueError(chr(0xd800))")
		wantStatus(t, x, contract.StatusFailed)
		if got := text(q.run("print(kept)"), contract.Stdout); got != "1\n" {
			t.Errorf("the next run printed %q", got)
		}
	})
}

// The kernel flushes sys.stdout and sys.stderr after each run, and sends no end of the run if
// that fails.
func TestAStreamThatCannotBeFlushedIsSetBack(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		for _, code := range []string{
			"sys.stdout = None",
			"class Broken:\n    def flush(self): raise OSError('x' * 1000)\nsys.stdout = sys.stderr = Broken()",
		} {
			x := q.run("import sys\n" + code)
			if !x.Status.Finished() || !strings.Contains(text(x, contract.Stderr), "was reset") {
				t.Errorf("%s: %s, %q", code, x.Status, text(x, contract.Stderr))
			}
			if got := text(q.run("print('next')"), contract.Stdout); got != "next\n" {
				t.Errorf("after %s: %q", code, got)
			}
		}
		kept := q.run("import io, sys\nsys.stdout = io.StringIO()\nprint('kept')")
		if got := text(q.run("print(sys.stdout.getvalue(), file=sys.stderr)"), contract.Stderr); text(kept, contract.Stderr) != "" || got != "kept\n\n" {
			t.Errorf("a stream of the user's: %q, %q", text(kept, contract.Stderr), got)
		}
	})
}
