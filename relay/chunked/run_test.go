package chunked

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"colabrelay/relay/checkpoint"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

// This code appends each iteration's number to a file on the VM, and sums the numbers, which
// is right only if all iterations ran in one namespace.
const (
	writesSetup = "total = 0\nopen('setups', 'a').write('setup\\n')"
	writesLoop  = "total += i\nwith open('numbers', 'a') as f:\n    f.write(f'{i}\\n')\nresult = total"
)

// numbers returns the words in a file that iterations wrote.
func numbers(t *testing.T, m *machine, file string) []string {
	t.Helper()
	b, err := os.ReadFile(m.dir + "/" + file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// upTo returns "0" to "n-1".
func upTo(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestFailedIterationIsNotCountedAndTheRestRunsWithFixedCode(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec(writesSetup, "assert i != 37, 'thirty-seven'\n"+writesLoop, 100)
		vm := &interceptor{VM: m}
		a := call(t, dir, s, vm, long)
		failed := stop{Status: "failed", EName: "AssertionError", Done: 37, Values: 37, Iteration: 37}
		a.checkStop(t, failed)
		if vm.count != 4 || a.Remaining() != 63 {
			t.Errorf("%d batches, %d remaining", vm.count, a.Remaining())
		}
		kept, err := Load(dir, s.Name)
		if err != nil || kept.Done != 37 || kept.Status != "failed" || kept.Failure == nil || *kept.Failure.Iteration != 37 || kept.InFlight != nil {
			t.Errorf("kept %+v %v", kept, err)
		}
		// The same call fails at the same iteration, and runs no other.
		call(t, dir, s, m, long).checkStop(t, failed)
		s.Loop = writesLoop
		if a = call(t, dir, s, m, long); !errors.Is(a.err, ErrChanged) || !strings.Contains(a.err.Error(), "loop_code") {
			t.Fatalf("changed code: %v", a.err)
		}
		s.OnChange = Continue
		a = finish(t, dir, s, m)
		same(t, "numbers", numbers(t, m, "numbers"), upTo(100))
		same(t, "setups", numbers(t, m, "setups"), []string{"setup"})
		if len(a.Results) != 100 || string(a.Results[99].Value) != "4950" || len(a.Ranges) != 1 {
			t.Errorf("%d values, ranges %v", len(a.Results), a.Ranges)
		}
		// Finished and unchanged: nothing runs.
		vm.count = 0
		if a = finish(t, dir, s, vm); vm.count != 0 {
			t.Errorf("a finished run submitted %d batches", vm.count)
		}
		s.OnChange = Restart
		finish(t, dir, s, m)
		same(t, "numbers", numbers(t, m, "numbers"), append(upTo(100), upTo(100)...))
	})
}

func TestSetupThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	s := spec("import os\nassert os.path.exists('ready'), 'not ready'\nx = 1", "print(x)", 2)
	a := call(t, dir, s, m, long)
	a.checkStop(t, stop{Status: "failed", EName: "AssertionError", Iteration: -1, Setup: true})
	m.python("open('ready', 'w').close()")
	finish(t, dir, s, m)
}

func TestCallReturnsInTimeAndTheNextOneContinues(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec(writesSetup, "import time\ntime.sleep(.05)\nprint('now', i)\n"+writesLoop, 24)
		s.BatchSize = 12
		calls, printed := 0, ""
		for {
			calls++
			began := time.Now()
			a := call(t, dir, s, m, 300*time.Millisecond)
			if a.err != nil || a.Stop != nil {
				t.Fatalf("%v %s", a.err, a.why())
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("a call of 0.3 s took %s", took)
			}
			printed += a.printed
			if a.Status == StatusFinished {
				break
			}
			if calls > 60 {
				t.Fatal("the run never ends")
			}
		}
		if calls < 3 {
			t.Errorf("%d calls: no call was cut", calls)
		}
		same(t, "numbers", numbers(t, m, "numbers"), upTo(24))
		var want strings.Builder
		for i := range 24 {
			fmt.Fprintf(&want, "now %d\n", i)
		}
		if printed != want.String() {
			t.Errorf("outputs of all calls: %q", printed)
		}
	})
}

func TestWatchedRunReportsItsProgress(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	r, err := Open(dir, spec("", "import time\ntime.sleep(.01)\nresult = i", 30))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var done []int64
	_, err = r.Advance(t.Context(), m, Options{Until: time.Now().Add(long), Live: true, Progress: func(s *Record) { done = append(done, s.Done) }})
	if err != nil || len(done) != 30 || done[29] != 30 || r.Record().MeanSeconds < .009 || r.Record().SlowestSeconds < r.Record().MeanSeconds {
		t.Errorf("%v %v %+v", err, done, r.Record())
	}
}

// Batches end when their time is over, long before their deadline.
func TestSlowIterationsMakeShortBatches(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	vm := &interceptor{VM: m, submit: func(_ *string, s *contract.Submit) {
		s.Code = strings.Replace(s.Code, `\"seconds\":30`, `\"seconds\":0.3`, 1)
	}}
	s := spec("", "import time\ntime.sleep(.1 if i < 6 else 0)\n"+"open('numbers', 'a').write(f'{i}\\n')", 40)
	s.BatchSize = 1000
	finish(t, dir, s, vm)
	same(t, "numbers", numbers(t, m, "numbers"), upTo(40))
	if vm.count != 3 {
		t.Errorf("%d batches, want two of three iterations and one of the rest", vm.count)
	}
}

func TestDeadlineCountsWhatWasDoneAndTheNextTryGetsMoreTime(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		vm := &interceptor{VM: m, submit: func(_ *string, s *contract.Submit) { s.TimeoutSeconds = 1 }}
		s := spec(writesSetup, "import os, time\nwhile i == 3 and not os.path.exists('free'): time.sleep(.01)\n"+writesLoop, 6)
		a := call(t, dir, s, vm, long)
		a.checkStop(t, stop{Status: "timed_out", EName: "KeyboardInterrupt", Done: 3, Values: 3, Iteration: -1})
		if a.SlowestSeconds < .5 || a.SlowestSeconds > 20 {
			t.Errorf("slowest %v s", a.SlowestSeconds)
		}
		if (&Record{SlowestSeconds: 300}).deadline() != 3000 || (&Record{SlowestSeconds: 1}).deadline() != 300 || (&Record{SlowestSeconds: 1e6}).deadline() != 86400 || (&Record{SetupSeconds: 40}).deadline() != 400 {
			t.Error("deadlines")
		}
		m.python("open('free', 'w').close()")
		finish(t, dir, s, m)
		same(t, "numbers", numbers(t, m, "numbers"), upTo(6))
	})
}

func TestInterruptStopsTheRunAlsoWhenTheBodyCatchesIt(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		loop := "import time\ntry:\n    while i == 2: time.sleep(.01)\nexcept BaseException:\n    pass\n" + writesLoop
		s := spec(writesSetup, loop, 5)
		for a := call(t, dir, s, m, time.Second); a.Done < 2; a = call(t, dir, s, m, time.Second) {
			if a.err != nil || a.Stop != nil {
				t.Fatalf("%v %s", a.err, a.why())
			}
		}
		a := call(t, dir, s, m, 0)
		if _, err := m.Interrupt(t.Context(), a.Batch.ExecutionID); err != nil {
			t.Fatal(err)
		}
		a = call(t, dir, s, m, long)
		a.checkStop(t, stop{Status: "interrupted", EName: "KeyboardInterrupt", Done: 3, Values: 3, Iteration: -1})
		finish(t, dir, s, m)
		same(t, "numbers", numbers(t, m, "numbers"), upTo(5))
	})
}

// An interrupt may come at any moment.
func TestIterationsKeepTheirOrderUnderManyInterrupts(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		interrupting := `
import os, random, signal, threading
stop_interrupting = threading.Event()
def interrupting():
    r = random.Random(7)
    while not stop_interrupting.wait(r.random() / 100):
        if type(getattr(signal.getsignal(signal.SIGINT), "__self__", None)).__name__ == "Interrupts":
            os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupting, daemon=True).start()
`
		m.python(interrupting)
		iterations := int64(50)
		if os.Getenv("LONG") != "" {
			iterations = 1000
		}
		s := spec("", "log = open('numbers', 'a')\nlog.write(f'{i}\\n')\nlog.close()\nresult = i", iterations)
		s.BatchSize = 20
		stops := int64(0)
		for {
			a := call(t, dir, s, m, long)
			if a.err != nil {
				t.Fatal(a.err)
			}
			if a.Stop == nil {
				break
			}
			// An interrupt that arrives a moment too late hits IPython itself, which then may not reply.
			if e := a.Stop.Execution; e.Error != nil && e.Error.EName != "KeyboardInterrupt" {
				t.Fatalf("stopped by %s", a.why())
			}
			if stops++; stops > 5*iterations {
				t.Fatal("the run never ends")
			}
		}
		m.python("stop_interrupting.set()")
		if stops == 0 {
			t.Error("no interrupt stopped the run: the test is too short")
		}
		last := int64(-1)
		for _, text := range numbers(t, m, "numbers") {
			var n int64
			fmt.Sscan(text, &n)
			if n != last && n != last+1 {
				t.Fatalf("%d after %d", n, last)
			}
			last = n
		}
		if last != iterations-1 {
			t.Errorf("ended at %d", last)
		}
	})
}

// Each interrupt arrives at the worst moment: when the iteration has ended and is not counted
// yet. loop.py calls time.monotonic there.
func TestInterruptBetweenEndAndCountOfAnIterationIsDelayed(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		setup := writesSetup + `
import os, signal, sys, time
ended, fired, real = False, 0, time.monotonic
def monotonic():
    global ended, fired
    if ended and sys._getframe(1).f_code.co_name == "step":
        ended, fired = False, fired + 1
        os.kill(os.getpid(), signal.SIGINT)
    return real()
time.monotonic = monotonic
`
		s := spec(setup, writesLoop+"\nended = True", 6)
		for calls := 0; ; calls++ {
			a := call(t, dir, s, m, long)
			if a.err != nil || calls > 10 {
				t.Fatalf("%v after %d calls", a.err, calls)
			}
			if a.Done != int64(calls+1) {
				t.Fatalf("%d done after %d calls: %s", a.Done, calls+1, a.why())
			}
			if a.Stop == nil {
				break
			}
			if e := a.Stop.Execution.Error; e == nil || e.EName != "KeyboardInterrupt" {
				t.Fatalf("stopped by %s", a.why())
			}
		}
		same(t, "numbers", numbers(t, m, "numbers"), upTo(6))
		if got := m.python("print(fired); time.monotonic = real"); got != "6\n" {
			t.Errorf("%s interrupts", got)
		}
	})
}

func TestBatchWaitsItsTurnAndForInput(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	e, err := m.Submit(t.Context(), contract.Submit{Code: "import os, time\nwhile not os.path.exists('go'): time.sleep(.01)"})
	if err != nil {
		t.Fatal(err)
	}
	s := spec("", "print(input('who? ') if i == 1 else i)", 3)
	a := call(t, dir, s, m, 300*time.Millisecond)
	if a.err != nil || a.Batch.Status != contract.StatusQueued || a.InFlight == nil {
		t.Fatalf("behind %s: %s %v", e.ExecutionID, a.Batch.Status, a.err)
	}
	if err := os.WriteFile(m.dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for a.Batch.Status != contract.StatusWaitingForInput {
		if a = call(t, dir, s, m, time.Second); a.err != nil || a.Stop != nil || a.Status == StatusFinished {
			t.Fatalf("%v %s %s", a.err, a.Status, a.why())
		}
	}
	if _, err := m.Input(t.Context(), a.Batch.ExecutionID, contract.Input{Text: "Ada"}); err != nil {
		t.Fatal(err)
	}
	if a = finish(t, dir, s, m); !strings.Contains(a.printed, "Ada\n2\n") {
		t.Errorf("printed %q", a.printed)
	}
}

func TestOnlyOneCallAtATimeWorksOnARun(t *testing.T) {
	dir := t.TempDir()
	s := spec("", "1", 1)
	r, err := Open(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, s); !errors.Is(err, checkpoint.ErrBusy) {
		t.Errorf("a second call of the run: %v", err)
	}
	other := s
	other.Name = "another"
	o, err := Open(dir, other)
	if err != nil {
		t.Fatalf("another name: %v", err)
	}
	o.Close()
	r.Close()
	if r, err = Open(dir, s); err != nil {
		t.Fatalf("afterwards: %v", err)
	}
	r.Close()
	if _, err := checkpoint.Load(dir, s.Name, nil); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("opening left a file: %v", err)
	}
}
