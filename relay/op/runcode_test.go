package op

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/render"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

func TestQuickRunIsOneRequest(t *testing.T) {
	h, f := serveFake(t)
	run := f.run("e1")
	run.print("hello\n")
	run.event(contract.Event{Type: contract.EventExecuteResult, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"2"`)}})
	run.end(contract.StatusSucceeded)
	for range 2 {
		r := h.call("run_code_quick", map[string]any{"code": "print('hello'); 1+1"})
		got := r.run(t)
		want := Run{
			Status: "succeeded", Stdout: "hello\n", Result: new("2"), ExecutionID: "e1", NextOffset: 2,
			MemoryBeforeGB: new(1.0), MemoryAfterGB: new(2.0), MemoryDeltaMB: new(1024.0),
		}
		sameFields(t, want, got, "Status", "Stdout", "Result", "ExecutionID", "NextOffset", "Truncated", "MemoryBeforeGB", "MemoryAfterGB", "MemoryDeltaMB")
		if r.outcome(t).Runtime != "test" || got.ExecutionTimeSec == nil || !strings.Contains(r.Content[0].Text, "hello") {
			t.Errorf("%+v", r)
		}
	}
	if n := f.count("GET", contract.PathExecutions+"/e1"); n != 0 {
		t.Errorf("%d reads after the submits", n)
	}
	s := run.submitted()
	if len(s) != 2 || s[0].TimeoutSeconds != 120 || s[0].RequestID == "" || s[0].RequestID == s[1].RequestID {
		t.Errorf("submitted %+v", s)
	}
}

// A run that succeeded on a full disk says that its output ends with the executor.
func TestTheReasonOfARunThatSucceededIsANote(t *testing.T) {
	for status, noted := range map[contract.Status]bool{contract.StatusSucceeded: true, contract.StatusRunning: true, contract.StatusLost: false} {
		r := newRun(contract.Execution{Status: status, Reason: "the VM's disk\nis \x1b[31mfull"}, render.View{})
		if got := strings.Join(r.Notes, "|"); noted != (got == "“the VM's disk is full”") {
			t.Errorf("%s: notes %q", status, got)
		}
	}
}

func TestLongRunReturnsWithinTheHoldAndTheRestFollowsWithoutLossOrDoubling(t *testing.T) {
	onOwnClock(t, 2*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		run := f.run("e1")
		run.print("one\n")
		began := time.Now()
		r := h.call("run_code_long", map[string]any{"code": "x", "timeout_seconds": 300.5})
		first := r.run(t)
		if took := time.Since(began); took < time.Second || took > 4*time.Second {
			t.Errorf("returned after %s", took)
		}
		sameFields(t, Run{Status: "running", Stdout: "one\n", NextOffset: 1, ExecutionID: "e1"}, first, "Status", "Stdout", "NextOffset", "ExecutionID")
		if r.IsError || !strings.Contains(r.Content[0].Text, "get_execution") {
			t.Errorf("an error, or the text does not say how to continue: %s", r.Content[0].Text)
		}
		if s := run.submitted()[0]; s.TimeoutSeconds != 300.5 {
			t.Errorf("timeout %v", s.TimeoutSeconds)
		}
		run.print("two\n")
		go func() {
			run.print("three\n")
			run.end(contract.StatusSucceeded)
		}()
		rest := h.call("get_execution", map[string]any{"execution_id": "e1", "offset": first.NextOffset, "wait_seconds": 600}).run(t)
		sameFields(t, Run{Status: "succeeded", Stdout: "two\nthree\n", NextOffset: 3}, rest, "Status", "Stdout", "NextOffset")
	})
}

func TestABadEndIsAnErrorWithTheOutputUntilThen(t *testing.T) {
	h, f := serveFake(t)
	run := f.run("e1")
	run.print("until then\n")
	run.set(func(e *contract.Execution) { e.Reason = "the reason" })
	run.end(contract.StatusKernelDied)
	r := h.call("get_execution", map[string]any{"execution_id": "e1"})
	e := r.outcome(t).Error
	if e == nil || e.Code != "kernel_died" || e.Message != "the VM says: “the reason”" || r.run(t).Stdout != "until then\n" || r.run(t).Status != "kernel_died" {
		t.Errorf("%s", r.Structured)
	}
}

func TestABrokenConnectionWhileWaitingIsAWarningAndTheRunContinues(t *testing.T) {
	onOwnClock(t, 2*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		f.on("POST", contract.PathExecutions, func(*http.Request, []byte) (int, any) {
			return 200, contract.Execution{ExecutionID: "e1", Status: contract.StatusRunning, KernelID: "kernel-1", NextOffset: 1,
				Events: []contract.Event{{Type: contract.EventStream, Name: "stdout", Text: "so far\n"}}}
		})
		f.on("GET", contract.PathExecutions+"/e1", func(*http.Request, []byte) (int, any) { panic(http.ErrAbortHandler) })
		r := h.call("run_code_long", map[string]any{"code": "x"})
		got, o := r.run(t), r.outcome(t)
		if r.IsError || got.Status != "running" || got.Stdout != "so far\n" || got.NextOffset != 1 || !strings.Contains(o.Warning, "the run goes on") {
			t.Errorf("%s", r.Structured)
		}
	})
}

func TestANewVMIsReportedInPlainWords(t *testing.T) {
	h, f := serveFake(t)
	f.on("POST", contract.PathExecutions, func(*http.Request, []byte) (int, any) {
		return 409, &contract.Error{Code: contract.CodeNewInstance, Message: "instance"}
	})
	e := h.call("run_code_quick", map[string]any{"code": "x"}).outcome(t).Error
	if e.Code != "new_instance" || !strings.Contains(e.Message, "was not run again") || !strings.Contains(e.Message, "variables") || !strings.Contains(e.Hint, "call the tool again") {
		t.Errorf("%+v", e)
	}
}

func TestCheckpointIsKeptAndCompletedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := unserved()
		rt := directly(t, f.secret, f)
		dir := t.TempDir()
		h := startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return rt, nil }, CheckpointDir: dir, Hold: time.Second})
		run := f.run("e1")
		got := h.call("run_code_long", map[string]any{"code": "x", "checkpoint_name": "my run"}).run(t)
		if got.CheckpointSaved == nil || !*got.CheckpointSaved || filepath.Dir(got.CheckpointPath) != dir {
			t.Fatalf("%+v", got)
		}
		var data struct{ Status, Stdout string }
		if _, err := checkpoint.Load(dir, "my run", &data); err != nil || data.Status != "running" {
			t.Errorf("%+v %v", data, err)
		}
		run.print("done\n")
		run.end(contract.StatusSucceeded)
		h.call("get_execution", map[string]any{"execution_id": "e1", "wait_seconds": 5})
		if _, err := checkpoint.Load(dir, "my run", &data); err != nil || data.Status != "succeeded" || data.Stdout != "done\n" {
			t.Errorf("%+v %v", data, err)
		}
		run.end(contract.StatusFailed) // as no executor says after the end
		h.call("get_execution", map[string]any{"execution_id": "e1", "wait_seconds": 5})
		if _, err := checkpoint.Load(dir, "my run", &data); err != nil || data.Status != "succeeded" {
			t.Errorf("a later answer changed the checkpoint: %+v %v", data, err)
		}
		if plain := h.call("run_code_long", map[string]any{"code": "x"}).run(t); plain.CheckpointSaved != nil {
			t.Error("a checkpoint without a request for it")
		}
	})
}
