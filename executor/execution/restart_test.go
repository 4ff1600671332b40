package execution

import (
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// However the code reacts to the interrupt, a run that a restart ends has no error of the code, and
// one whose code has come to its end keeps that outcome.
func TestARestartEndsARun(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		for _, test := range []struct {
			name, code, stdout string
			status             contract.Status
		}{
			{"interrupted", "import time\nprint('on', flush=True)\ntime.sleep(3600)", "on\n", contract.StatusKernelRestarted},
			{"deaf", "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on', flush=True)\nwhile True: time.sleep(.1)", "on\n", contract.StatusKernelRestarted},
			// The print is inside the try: its event can arrive while print still flushes, and
			// an interrupt there would be the code's error.
			{"ends well", "import time\ntry:\n  print('on', flush=True)\n  time.sleep(3600)\nexcept KeyboardInterrupt: print('saved')", "on\nsaved\n", contract.StatusSucceeded},
		} {
			id := q.submit(test.code, 0)
			q.awaitEvent(id, 0)
			waiting := q.submit("1", 0)
			if err := q.kernel.Restart(t.Context(), q.kernel.Status().KernelID); err != nil {
				t.Fatal(err)
			}
			x := q.settle(id)
			if x.Status != test.status || x.Error != nil || text(x, contract.Stdout) != test.stdout {
				t.Errorf("%s: %s, reason %q, error %+v, events %+v", test.name, x.Status, x.Reason, x.Error, x.Events)
			}
			for _, e := range x.Events {
				if e.Type == contract.EventError {
					t.Errorf("%s: the log shows %s as the code's error", test.name, e.EName)
				}
			}
			wantStatus(t, q.settle(waiting), contract.StatusCancelled)
		}
	})
}
