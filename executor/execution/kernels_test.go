package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/executor/kernel"
	"colabrelay/executor/kernel/kerneltest"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// A kernel that ends between two runs gets no more code, which is no failure of the code.
func TestCodeForAKernelThatHasJustEndedDidNotRun(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := kerneltest.Start(t, stacks.Old(t))
	defer l.Stop()
	k, err := l.Ready()
	must(t, err)
	must(t, k.Client.Close())
	memory := func() (uint64, uint64, error) { return 1 << 30, 8 << 30, nil }
	q := New(Config{Kernel: l.Supervisor, Journal: unstarted(t).journal, Memory: memory, Log: slog.New(slog.DiscardHandler)})
	q.add(t, "1", "caller")
	(&runner{q: q, kernel: k}).begin(t.Context())
	x := q.journal.ByRequest("1").Snapshot()
	wantStatus(t, x, contract.StatusCancelled)
	if !strings.Contains(x.Reason, "did not run") {
		t.Errorf("the reason is %q", x.Reason)
	}
}

// Code that waits in different ways ends with one interrupt, and the kernel keeps its variables.
func TestOneInterruptEndsCodeHoweverItWaits(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		for name, waits := range map[string]string{
			"asyncio.sleep":       "import asyncio\n%s\nawait asyncio.sleep(600)",
			"asyncio.gather":      "import asyncio\n%s\nawait asyncio.gather(*(asyncio.sleep(600) for _ in range(3)))",
			"time.sleep":          "import time\n%s\ntime.sleep(600)",
			"a lock":              "import threading\nlock = threading.Lock()\nlock.acquire()\n%s\nlock.acquire()",
			"commands in a row":   "%s\nfor n in range(100):\n  !sleep 600",
			"output of a command": "%s\nfor n in range(100):\n  x = !sleep 600",
			"a script":            "%%%%bash\ntouch %[2]s\nsleep 600",
			"a handler":           "import time\ntry:\n  %s\n  time.sleep(600)\nexcept KeyboardInterrupt:\n  time.sleep(.2)\n  saved = 1",
		} {
			started := filepath.Join(t.TempDir(), "started")
			q.run("kept = 5")
			id := q.submit(fmt.Sprintf(waits+"\n#%[2]s", fmt.Sprintf("open(%q, 'w').close()", started), started), 900)
			within.Until(t, name+" has begun", func() bool { _, err := os.Stat(started); return err == nil })
			if _, err := q.Interrupt(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			x := q.settle(id)
			if x.Status != contract.StatusInterrupted {
				t.Errorf("%s: %s (%s) %+v", name, x.Status, x.Reason, x.Error)
			}
			if got := text(q.run("print(kept)"), contract.Stdout); got != "5\n" {
				t.Errorf("%s: kept = %q", name, got)
			}
		}
		if got := text(q.run("print(saved)"), contract.Stdout); got != "1\n" {
			t.Errorf("the handler did not end: %q", got)
		}
	})
}

// What threads print may come as output of a request that is no run's, such as one that wakes the
// kernel or lists variables.
func TestOutputOfNoRunBelongsToTheNewest(t *testing.T) {
	q := unstarted(t)
	c := unstartedIn(t, q)
	c.msgID = "own"
	r := &runner{q: q, kernel: &kernel.Kernel{}, runs: []*run{c}, current: c}
	for kind, content := range map[string]string{jupyter.MsgStream: `{"name":"stdout","text":"late"}`, jupyter.MsgStatus: `{"execution_state":"idle"}`} {
		m := &jupyter.Message{Header: jupyter.Header{MsgType: kind}, ParentHeader: jupyter.Header{MsgID: "wake"}, Content: []byte(content)}
		if kind == jupyter.MsgStream {
			m.Dropped.Messages, m.Dropped.Bytes = 2, 9
		}
		r.message(t.Context(), m)
		m.ParentHeader.MsgID = ""
		r.message(t.Context(), m)
	}
	c.flush(time.Now())
	x := read(t, q.journal, c.record.ID)
	if got := text(x, contract.Stdout); got != "late" || x.Events[0].Type != contract.EventGap || c.idle {
		t.Errorf("printed %q, idle %v: %+v", got, c.idle, x.Events)
	}
}

// What waits when an execution ends comes before the next one, and no more than that.
func TestCallsAndExecutionsTakeTurns(t *testing.T) {
	q := unstarted(t)
	visit := func() chan struct{} {
		turn := make(chan struct{})
		q.guests.waiting = append(q.guests.waiting, turn)
		return turn
	}
	has := func(turn chan struct{}) bool {
		select {
		case <-turn:
			return true
		default:
			return false
		}
	}
	q.add(t, "running", "a")
	q.add(t, "next", "a")
	q.next()
	first, second := visit(), visit()
	q.yield()
	if !has(first) || has(second) || q.next() != nil {
		t.Fatalf("after the execution, the first call has the kernel: %t, the second: %t", has(first), has(second))
	}
	late := visit()
	q.giveBack()
	if !has(second) || has(late) || q.next() != nil {
		t.Fatalf("after the first call, the second has the kernel: %t, the late one: %t", has(second), has(late))
	}
	q.giveBack()
	if w := q.next(); has(late) || w == nil || w.Source.(*single).code != "next" {
		t.Fatalf("after the calls that waited, the late one has the kernel: %t, the next execution is %v", has(late), w)
	}
	q.yield()
	if !has(late) {
		t.Error("the late call did not get the kernel after the next execution")
	}
}

// One call more than may wait is refused at once. One that gives up makes room.
func TestCallsThatWaitAreBounded(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	err := q.WithIdleKernel(t.Context(), func(context.Context, *kernel.Kernel) error {
		var last chan struct{}
		for n := range maxGuests {
			turn, err := q.visit()
			if err != nil {
				return fmt.Errorf("call %d: %w", n, err)
			}
			last = turn
		}
		if _, err := q.visit(); !errors.Is(err, ErrKernelBusy) {
			return fmt.Errorf("one call too many: %v", err)
		}
		if err := q.leave(last, nil); !errors.Is(err, ErrKernelBusy) {
			return fmt.Errorf("the call that gives up: %v", err)
		}
		_, err := q.visit()
		return err
	})
	must(t, err)
}

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
			must(t, q.kernel.Restart(t.Context(), q.kernel.Status().KernelID))
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

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
