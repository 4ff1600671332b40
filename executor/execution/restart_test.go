package execution

import (
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// However the code reacts to the interrupt, a run that a restart ends has no error.
func TestARunThatARestartEndsHasNoError(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		for _, test := range []struct{ name, code string }{
			{"interrupted", "import time\nprint('on', flush=True)\ntime.sleep(3600)"},
			{"another error", "import time\ntry:\n  print('on', flush=True)\n  time.sleep(3600)\nexcept KeyboardInterrupt: raise RuntimeError('a worker died')"},
			{"deaf", "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on', flush=True)\nwhile True: time.sleep(.1)"},
			{"waiting for input", "print('on', flush=True)\ninput()"},
		} {
			id := q.submit(test.code, 0)
			q.awaitEvent(id, 0)
			waiting := q.submit("1", 0)
			if err := q.kernel.Restart(t.Context(), q.kernel.Status().KernelID); err != nil {
				t.Fatal(err)
			}
			x := q.settle(id)
			if x.Status != contract.StatusKernelRestarted || x.Error != nil || !strings.Contains(x.Reason, "variables are gone") {
				t.Errorf("%s: %s, reason %q, error %+v", test.name, x.Status, x.Reason, x.Error)
			}
			for _, e := range x.Events {
				if e.Type == contract.EventError {
					t.Errorf("%s: the log shows %s as the code's error", test.name, e.EName)
				}
			}
			if text(x, contract.Stdout) != "on\n" {
				t.Errorf("%s: events = %+v", test.name, x.Events)
			}
			wantStatus(t, q.settle(waiting), contract.StatusCancelled)
		}
	})
}

func TestARestartKeepsAnOutcomeThatTheCodeReached(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		failed := q.run("1/0")
		// The print is inside the try: its event can arrive while print still flushes, and
		// an interrupt there would be the code's error.
		id := q.submit("import time\ntry:\n  print('on', flush=True)\n  time.sleep(3600)\nexcept KeyboardInterrupt: print('saved')", 0)
		q.awaitEvent(id, 0)
		if err := q.kernel.Restart(t.Context(), q.kernel.Status().KernelID); err != nil {
			t.Fatal(err)
		}
		x := q.settle(id)
		wantStatus(t, x, contract.StatusSucceeded)
		if text(x, contract.Stdout) != "on\nsaved\n" {
			t.Errorf("events = %+v", x.Events)
		}
		before := q.settle(failed.ExecutionID)
		if before.Status != contract.StatusFailed || before.Error == nil || before.Error.EName != "ZeroDivisionError" {
			t.Errorf("the failed one is %s, %+v", before.Status, before.Error)
		}
	})
}
