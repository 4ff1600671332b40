package chunked

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

func TestLostSubmitAnswerNeitherLosesNorRepeatsIterations(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec(writesSetup, writesLoop, 25)
		vm := &interceptor{VM: m}
		for n := range 3 {
			vm.answer = func(contract.Execution, error) (contract.Execution, error) { return contract.Execution{}, errCut }
			a := call(t, dir, s, vm, long)
			if !errors.Is(a.err, errCut) || a.InFlight == nil || a.InFlight.Lo != int64(n*10) {
				t.Fatalf("%d: %v %+v", n, a.err, a.InFlight)
			}
			vm.answer = nil
			for a = call(t, dir, s, vm, 0); a.InFlight != nil; a = call(t, dir, s, vm, 0) {
			}
			if a.err != nil || a.Done != min(int64(n+1)*10, 25) {
				t.Fatalf("%d: resumed with %d done, %v", n, a.Done, a.err)
			}
		}
		same(t, "numbers", numbers(t, m, "numbers"), upTo(25))
		same(t, "setups", numbers(t, m, "setups"), []string{"setup"})
		if vm.count != 3 {
			t.Errorf("%d submits", vm.count)
		}
	})
}

// The file is restored to what it was at the moment of the kill: before the submit, or after
// the batch ran and before its end was recorded.
func TestKilledRelayNeitherLosesNorRepeatsIterations(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	s := spec(writesSetup, writesLoop, 30)
	path := checkpoint.Path(dir, s.Name)
	var atSubmit *snapshot
	vm := &interceptor{VM: m}
	vm.submit = func(*string, *contract.Submit) { atSubmit = take(t, path) }

	// Killed after recording the first batch, before submitting it.
	vm.answer = nil
	never := &interceptor{VM: m, submit: func(instanceID *string, _ *contract.Submit) {
		atSubmit = take(t, path)
		*instanceID = "none" // the submit is refused, as if it was never sent
	}}
	call(t, dir, s, never, long)
	atSubmit.put(t)
	if got := numbers(t, m, "numbers"); len(got) != 0 {
		t.Fatalf("it ran: %v", got)
	}
	// Killed after the batch ran, before its end was recorded.
	vm.answer = func(e contract.Execution, err error) (contract.Execution, error) {
		if len(numbers(t, m, "numbers")) == 20 {
			err = errCut
		}
		return e, err
	}
	if a := call(t, dir, s, vm, long); !errors.Is(a.err, errCut) {
		t.Fatalf("%v", a.err)
	}
	atSubmit.put(t)
	kept, err := Load(dir, s.Name)
	if err != nil || kept.Done != 10 || kept.InFlight == nil || kept.InFlight.ExecutionID != "" {
		t.Fatalf("the file after the kill: %+v %v", kept, err)
	}
	vm.answer = nil
	a := finish(t, dir, s, vm)
	same(t, "numbers", numbers(t, m, "numbers"), upTo(30))
	if len(a.Results) != 30 || len(a.Notes) != 0 {
		t.Errorf("%d values, notes %q", len(a.Results), a.Notes)
	}
}

func TestExecutorKilledDuringABatchAndStartedAgain(t *testing.T) {
	t.Parallel()
	for name, sameFolder := range map[string]bool{"on the same state dir": true, "on a new machine": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work, dir := t.TempDir(), t.TempDir()
			m := start(t, stacks.Old(t), work)
			s := spec(writesSetup, "import time\n"+writesLoop+"\ntime.sleep(.03)", 20)
			s.OnNewKernel = NewKernelContinue
			for a := call(t, dir, s, m, 0); a.Done < 11; a = call(t, dir, s, m, 200*time.Millisecond) {
				if a.err != nil {
					t.Fatal(a.err)
				}
			}
			m.Kill()
			before, err := Load(dir, s.Name)
			if err != nil {
				t.Fatal(err)
			}
			var lost *client.Error
			if a := callWithin(t, dir, s, m, 300*time.Millisecond, 300*time.Millisecond); !errors.As(a.err, &lost) || a.Done != before.Done {
				t.Fatalf("without an executor: done %d, %v", a.Done, a.err)
			}
			first := numbers(t, m, "numbers")
			if !sameFolder {
				work = t.TempDir()
			}
			again := start(t, stacks.Old(t), work)
			a := finish(t, dir, s, again)
			var second []string
			if second = numbers(t, again, "numbers"); sameFolder {
				second = second[len(first):]
			}
			// Unconfirmed iterations run again, confirmed ones do not.
			begin := slices.Index(upTo(20), second[0])
			same(t, "the second kernel", second, upTo(20)[begin:])
			if begin < int(before.Done) || begin > len(first) {
				t.Errorf("%d confirmed, %d written, continued at %d", before.Done, len(first), begin)
			}
			same(t, "setups", numbers(t, again, "setups")[:1], []string{"setup"})
			if len(a.Ranges) != 2 || a.Ranges[0].KernelID == a.Ranges[1].KernelID || (a.Ranges[0].InstanceID == a.Ranges[1].InstanceID) != sameFolder {
				t.Errorf("ranges %+v", a.Ranges)
			}
			if text := strings.Join(a.Notes, "; "); !strings.Contains(text, "setup code ran before iteration") || !strings.Contains(text, "run again") {
				t.Errorf("notes %q", text)
			}
		})
	}
}

func TestDeadKernelStopsTheRunOnceAndTheNextCallContinues(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		loop := writesLoop + "\nimport os, time\nif i == 5 and open('setups').read().count('setup') == 1:\n    time.sleep(.3)\n    os.kill(os.getpid(), 9)"
		s := spec(writesSetup, loop, 12)
		s.OnNewKernel = NewKernelContinue
		a := call(t, dir, s, m, long)
		a.checkStop(t, stop{Status: "kernel_died", Done: 5, Values: 5, Iteration: -1})
		a = finish(t, dir, s, m)
		same(t, "numbers", numbers(t, m, "numbers"), append(upTo(6), upTo(12)[5:]...))
		same(t, "setups", numbers(t, m, "setups"), []string{"setup", "setup"})
		if string(a.Results[11].Value) != "56" { // 5+…+11: total started at 0 again
			t.Errorf("total %s", a.Results[11].Value)
		}
	})
}

func TestAfterACleanupTheSetupRunsAgainAndTheLoopContinues(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec(writesSetup, "assert i != 15 or 'kept' in globals()\n"+writesLoop, 20)
		call(t, dir, s, m, long).checkStop(t, stop{Status: "failed", EName: "AssertionError", Done: 15, Values: 15, Iteration: 15})
		if _, err := m.Cleanup(t.Context(), m.kernelID()); err != nil {
			t.Fatal(err)
		}
		m.python("kept = 1")
		call(t, dir, s, m, long).checkStop(t, stop{Status: StatusVariablesLost, Done: 15, Values: 15, Iteration: -1, Lost: []string{"total"}})
		s.OnNewKernel = NewKernelContinue
		a := finish(t, dir, s, m)
		same(t, "numbers", numbers(t, m, "numbers"), upTo(20))
		same(t, "setups", numbers(t, m, "setups"), []string{"setup", "setup"})
		if len(a.Ranges) != 1 || !strings.Contains(strings.Join(a.Notes, ""), "setup code ran before iteration 15") {
			t.Errorf("ranges %v, notes %q", a.Ranges, a.Notes)
		}
	})
}

// If all markers are lost, the kernel still knows which iterations ran: none runs twice.
func TestKernelsOwnRecordReplacesLostMarkers(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		drop := func(events []contract.Event) []contract.Event {
			var left []contract.Event
			for _, ev := range events {
				if IsMarker(ev) {
					ev = contract.Event{Offset: ev.Offset, Type: contract.EventGap, Events: 1, Bytes: 100}
				}
				left = append(left, ev)
			}
			return left
		}
		s := spec(writesSetup, writesLoop, 25)
		vm := &interceptor{VM: m, events: drop}
		a := call(t, dir, s, vm, 0)
		for a.InFlight != nil && a.err == nil {
			a = call(t, dir, s, vm, 0)
		}
		if a.err != nil || a.Done != 0 {
			t.Fatalf("done %d, %v", a.Done, a.err)
		}
		a = finish(t, dir, s, m)
		same(t, "numbers", numbers(t, m, "numbers"), upTo(25))
		if len(a.Results) != 15 || a.Results[0].Iteration != 10 || !strings.Contains(strings.Join(a.Notes, ""), "iterations 0 to 9") {
			t.Errorf("%d values, notes %q", len(a.Results), a.Notes)
		}
		// If all markers are lost all the time, the run ends with an error and does not submit for ever.
		s.Name = "silent"
		if a := call(t, dir, s, vm, long); !errors.Is(a.err, errNoMarkers) {
			t.Errorf("without any marker: %v", a.err)
		}
	})
}

func TestRestoredStateTakesTheRecordBack(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec(writesSetup, writesLoop, 40)
		s.Loop = "assert i != 30 or 'go' in globals()\n" + s.Loop
		a := call(t, dir, s, m, long)
		if a.Done != 30 {
			t.Fatalf("done %d", a.Done)
		}
		// This is what restore_kernel_state does in a new kernel: it restores the variables and
		// the record of iteration 20.
		m.restartKernel()
		m.python(fmt.Sprintf(`
import sys, types
sys.modules["colab_relay_runs"] = types.ModuleType("colab_relay_runs")
sys.modules["colab_relay_runs"].runs = {%q: {"setup": %q, "done": 20}}
total, go = sum(range(20)), 1
`, a.Key, a.SetupSHA256))
		a = finish(t, dir, s, m)
		same(t, "numbers", numbers(t, m, "numbers"), append(upTo(30), upTo(40)[20:]...))
		same(t, "setups", numbers(t, m, "setups"), []string{"setup"})
		if len(a.Results) != 40 || string(a.Results[39].Value) != "780" {
			t.Errorf("%d values, the last %s", len(a.Results), a.Results[len(a.Results)-1].Value)
		}
		if len(a.Ranges) != 2 || a.Ranges[0].To != 20 || a.Ranges[1].To != 40 {
			t.Errorf("ranges %+v", a.Ranges)
		}
		if !strings.Contains(strings.Join(a.Notes, ""), "iterations 20 to 29 were confirmed before and run again") {
			t.Errorf("notes %q", a.Notes)
		}
	})
}

func TestRestartInterruptsTheRunningBatchAndHappensOnce(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	s := spec("", "import time\ntime.sleep(60)", 5)
	first := call(t, dir, s, m, 300*time.Millisecond)
	if first.InFlight == nil || first.err != nil {
		t.Fatalf("%+v %v", first.Record, first.err)
	}
	s.OnChange = Restart
	s.Loop = "import time\ntime.sleep(.1)\nopen('numbers', 'a').write(f'{i}\\n')"
	for {
		a := call(t, dir, s, m, 250*time.Millisecond)
		if a.err != nil || a.Stop != nil {
			t.Fatalf("%v %s", a.err, a.why())
		}
		if a.Key == first.Key {
			t.Fatal("this is still the old run")
		}
		if a.Status == StatusFinished {
			break
		}
	}
	same(t, "numbers", numbers(t, m, "numbers"), upTo(5))
	if e, err := m.Execution(t.Context(), first.Batch.ExecutionID, 0, 0, 0); err != nil || e.Status != contract.StatusInterrupted {
		t.Errorf("the old batch: %s %v", e.Status, err)
	}
}

func TestUnusableFilesAreReportedAndRenamed(t *testing.T) {
	t.Parallel()
	m := borrow(t, stacks.Old(t))
	inconsistent := newRecord(spec("", "1", 3))
	inconsistent.Done = 2 // without a range
	for name, c := range map[string]struct {
		write func(path, dir string) error
		want  error
	}{
		"torn":  {func(path, _ string) error { return os.WriteFile(path, []byte(`{"operation":"run","da`), 0o600) }, ErrDamaged},
		"empty": {func(path, _ string) error { return os.WriteFile(path, nil, 0o600) }, ErrDamaged},
		"another": {func(path, _ string) error {
			return os.WriteFile(path, []byte(`{"operation":"other","data":{}}`), 0o600)
		}, ErrDamaged},
		"inconsistent": {func(_, dir string) error { _, err := checkpoint.Save(dir, "run", inconsistent); return err }, ErrDamaged},
		"not a chunked run": {func(_, dir string) error {
			_, err := checkpoint.Save(dir, "run", map[string]any{"success": true, "status": "succeeded"})
			return err
		}, ErrNotChunked},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := checkpoint.Path(dir, "run")
			if err := c.write(path, dir); err != nil {
				t.Fatal(err)
			}
			before := take(t, path)
			s := spec("", "print(i)", 2)
			for _, onChange := range []OnChange{Refuse, Continue} {
				s.OnChange = onChange
				if _, err := Open(dir, s); !errors.Is(err, c.want) {
					t.Fatalf("%s: %v", onChange, err)
				}
			}
			if string(take(t, path).body) != string(before.body) {
				t.Fatal("the file was changed")
			}
			s.OnChange = Restart
			a := finish(t, dir, s, m)
			files, _ := os.ReadDir(dir)
			found := false
			for _, f := range files {
				if strings.HasPrefix(f.Name(), "run.json.") && f.Name() != "run.json.lock" {
					found = string(take(t, dir+"/"+f.Name()).body) == string(before.body)
				}
			}
			if !found || !strings.Contains(strings.Join(a.Notes, ""), "is now ") {
				t.Errorf("not renamed: %v, notes %q", files, a.Notes)
			}
		})
	}
}

func TestNothingRunsIfTheRecordCannotBeWritten(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	s := spec("", writesLoop, 3)
	r, err := Open(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.dir = m.dir + "/numbers" // a file, where a folder is needed
	if err := os.WriteFile(r.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Advance(t.Context(), m, Options{Until: time.Now().Add(long)}); err == nil {
		t.Error("the run continued")
	}
	if got := numbers(t, m, "numbers"); len(got) != 0 {
		t.Errorf("ran %v", got)
	}
}
