package tools

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/render"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestQuickRunIsOneRequest(t *testing.T) {
	h, f := serveFake(t, 10*time.Second)
	run := f.run("e1")
	run.print("hello\n")
	run.event(contract.Event{Type: contract.EventExecuteResult, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"2"`)}})
	run.end(contract.StatusSucceeded)
	for _, token := range []any{nil, 7} {
		p := params("run_code_quick", map[string]any{"code": "print('hello'); 1+1"})
		p["_meta"] = map[string]any{"progressToken": token}
		_, ch := h.begin("tools/call", p)
		r := h.result("run_code_quick", h.await(ch))
		got := r.run(t)
		want := Run{
			Status: "succeeded", Stdout: "hello\n", Result: new("2"), ExecutionID: "e1", NextOffset: 2,
			MemoryBeforeGB: new(1.0), MemoryAfterGB: new(2.0), MemoryDeltaMB: new(1024.0),
		}
		sameFields(t, want, got, "Status", "Stdout", "Result", "ExecutionID", "NextOffset", "Truncated", "MemoryBeforeGB", "MemoryAfterGB", "MemoryDeltaMB")
		if got.ExecutionTimeSec == nil {
			t.Errorf("%s", r.Structured)
		}
		if r.outcome(t).Runtime != "test" || !strings.Contains(r.Content[0].Text, "hello") {
			t.Errorf("%+v", r)
		}
	}
	if n := f.count("GET", contract.PathExecutions+"/e1"); n != 0 {
		t.Errorf("%d reads after the submits", n)
	}
	s := run.submits
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
		if run.submits[0].TimeoutSeconds != 300.5 {
			t.Errorf("timeout %v", run.submits[0].TimeoutSeconds)
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

func TestGetExecutionWithoutWaitingPagesThroughEverything(t *testing.T) {
	tier.Long(t)
	h, f := serveFake(t, 10*time.Second)
	run := f.run("e1")
	var want strings.Builder
	for i := range 500 {
		text := strings.Repeat(fmt.Sprintf("line %d of many\n", i), 20)
		want.WriteString(text)
		run.print(text)
	}
	run.end(contract.StatusSucceeded)
	var got strings.Builder
	offset, pages := int64(0), 0
	for more := true; more; pages++ {
		r := h.call("get_execution", map[string]any{"execution_id": "e1", "offset": offset})
		page := r.run(t)
		if n := len([]rune(r.Content[0].Text)); n > 40_000 {
			t.Fatalf("%d characters", n)
		}
		if page.NextOffset <= offset {
			t.Fatalf("from %d to %d", offset, page.NextOffset)
		}
		got.WriteString(page.Stdout)
		offset, more = page.NextOffset, page.Truncated
	}
	if got.String() != want.String() || pages < 5 {
		t.Errorf("%d pages with %d of %d bytes", pages, got.Len(), want.Len())
	}
}

func TestLongOutputIsHeadAndTailAndSaved(t *testing.T) {
	tier.Long(t)
	h, f := serveFake(t, 10*time.Second)
	run := f.run("../e1") // an id must not lead out of the folder
	f.on("GET", contract.PathExecutions+"/../e1", nil)
	var want strings.Builder
	for i := range 2000 {
		text := strings.Repeat(fmt.Sprintf("line %d\n", i), 100)
		want.WriteString(text)
		run.print(text)
	}
	run.end(contract.StatusSucceeded)
	r := h.call("run_code_quick", map[string]any{"code": "x"})
	got := r.run(t)
	if !got.Truncated || !strings.HasPrefix(got.Stdout, "line 0\n") || !strings.HasSuffix(got.Stdout, "line 1999\n") || r.bytes > 200_000 {
		t.Fatalf("truncated %v, %d bytes in all, next %d", got.Truncated, r.bytes, got.NextOffset)
	}
	if len(got.SavedFiles) != 1 || !strings.Contains(r.Content[0].Text, got.SavedFiles[0].Path) {
		t.Fatalf("saved %v", got.SavedFiles)
	}
	b, err := os.ReadFile(got.SavedFiles[0].Path)
	if err != nil || string(b) != want.String() || strings.Contains(got.SavedFiles[0].Path, "..") {
		t.Errorf("%s holds %d of %d bytes, %v", got.SavedFiles[0].Path, len(b), want.Len(), err)
	}
}

func TestPythonErrorIsReportedWithItsTraceback(t *testing.T) {
	h, f := serveFake(t, 10*time.Second)
	run := f.run("e1")
	run.event(contract.Event{Type: contract.EventError, EName: "ValueError", EValue: "x", Traceback: []string{"\x1b[31mTraceback\x1b[0m", "ValueError: x"}})
	run.set(func(e *contract.Execution) { e.Error = &contract.ExecutionError{EName: "ValueError", EValue: "x"} })
	run.end(contract.StatusFailed)
	r := h.call("run_code_quick", map[string]any{"code": "raise ValueError('x')"})
	e := r.outcome(t).Error
	want := Problem{Code: "failed", Message: "the code raised “ValueError: x”", EName: "ValueError", EValue: "x", Traceback: "Traceback\nValueError: x"}
	sameFields(t, want, *e, "Code", "Message", "EName", "EValue", "Traceback")
	if !r.IsError || !strings.Contains(r.Content[0].Text, "Traceback") || strings.Contains(r.Content[0].Text, "\x1b") {
		t.Errorf("%q", r.Content[0].Text)
	}
}

func TestEveryBadEndIsAnErrorWithTheOutputUntilThen(t *testing.T) {
	for _, s := range []contract.Status{contract.StatusFailed, contract.StatusTimedOut, contract.StatusInterrupted, contract.StatusCancelled, contract.StatusKernelDied, contract.StatusKernelRestarted, contract.StatusLost} {
		t.Run(string(s), func(t *testing.T) {
			h, f := serveFake(t, 10*time.Second)
			run := f.run("e1")
			run.print("until then\n")
			run.set(func(e *contract.Execution) { e.Reason = "the reason" })
			run.end(s)
			for name, args := range map[string]any{"run_code_quick": map[string]any{"code": "x"}, "run_code_long": map[string]any{"code": "x"}, "get_execution": map[string]any{"execution_id": "e1"}} {
				r := h.call(name, args)
				e := r.outcome(t).Error
				if e == nil || e.Code != string(s) || e.Message != "the VM says: “the reason”" || r.run(t).Stdout != "until then\n" || r.run(t).Status != string(s) {
					t.Errorf("%s: %s", name, r.Structured)
				}
			}
		})
	}
}

func TestWaitingForInputShowsThePrompt(t *testing.T) {
	h, f := serveFake(t, time.Hour) // it does not wait on although the run asks for input
	run := f.run("e1")
	run.event(contract.Event{Type: contract.EventInputRequest, Prompt: "name? "})
	run.set(func(e *contract.Execution) { e.Status = contract.StatusWaitingForInput })
	r := h.call("run_code_long", map[string]any{"code": "input('name? ')"})
	got := r.run(t)
	if got.Status != "waiting_for_input" || got.InputPrompt == nil || *got.InputPrompt != "name? " || r.IsError || !strings.Contains(r.Content[0].Text, "provide_input") {
		t.Errorf("%s", r.Structured)
	}
	f.answer("POST", contract.PathExecutions+"/e1/input", contract.Execution{ExecutionID: "e1", Status: contract.StatusRunning})
	if s := decode[Standing](t, h.call("provide_input", map[string]any{"execution_id": "e1", "text": "Ada"}).Structured); s.Status != "running" {
		t.Errorf("%+v", s)
	}
}

func TestAnotherKernelIsWarnedOfOnce(t *testing.T) {
	h, f := serveFake(t, 10*time.Second)
	run := f.run("e1")
	run.end(contract.StatusSucceeded)
	quick := func() string { return h.call("run_code_quick", map[string]any{"code": "1"}).outcome(t).Warning }
	if w := quick(); w != "" {
		t.Errorf("the first call warns: %s", w)
	}
	run.set(func(e *contract.Execution) { e.KernelID = "kernel-2" })
	if w := quick(); !strings.Contains(w, "variables") {
		t.Errorf("no warning of the new kernel: %q", w)
	}
	if w := quick(); w != "" {
		t.Errorf("warned twice: %s", w)
	}
	f.answer("POST", contract.PathKernelRestart, contract.Kernel{KernelID: "kernel-3"})
	if w := h.call("restart_kernel", map[string]any{}).outcome(t).Warning; w != "" {
		t.Errorf("warned of a restart that was asked for: %s", w)
	}
	run.set(func(e *contract.Execution) { e.KernelID = "kernel-3" })
	if w := quick(); w != "" {
		t.Errorf("warned of a restart that was asked for: %s", w)
	}
	f.answer("GET", contract.PathVariables, contract.Variables{KernelID: "kernel-4"})
	if w := h.call("list_colab_variables", map[string]any{}).outcome(t).Warning; w == "" {
		t.Error("list_colab_variables does not warn")
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

func TestALostAnswerToASubmitSaysHowToFindTheRun(t *testing.T) {
	tier.Long(t)
	h, f := serveFake(t, time.Second)
	f.on("POST", contract.PathExecutions, func(*http.Request, []byte) (int, any) { panic(http.ErrAbortHandler) })
	e := h.call("run_code_quick", map[string]any{"code": "x"}).outcome(t).Error
	if e == nil || !strings.Contains(e.Hint, "list_executions") || !strings.Contains(e.Hint, "request_id") {
		t.Errorf("%+v", e)
	}
	if e.Code == string(client.KindWrongSecret) {
		t.Errorf("code %s", e.Code)
	}
}

func TestANewVMIsReportedInPlainWords(t *testing.T) {
	h, f := serveFake(t, 5*time.Second)
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

// A chunked run and a long run under one name: the second one fails, and neither
// overwrites what the other keeps.
func TestALongRunAndAChunkedRunDoNotShareACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := unserved()
		rt := directly(t, f.secret, f)
		dir := t.TempDir()
		h := startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return rt, nil }, CheckpointDir: dir, Hold: 10 * time.Second})
		spec := chunked.Spec{Name: "shared", Loop: "i", N: 3}
		long := map[string]any{"code": "x", "checkpoint_name": "shared"}
		run := f.run("e1")

		loop, err := chunked.Open(dir, spec) // it has written nothing yet
		if err != nil {
			t.Fatal(err)
		}
		if o := h.call("run_code_long", long).outcome(t); o.Error == nil || o.Error.Code != hint.CodeBusy || !strings.Contains(o.Error.Hint, "checkpoint_name") {
			t.Errorf("during a chunked run: %+v", o.Error)
		}
		if len(run.submits) != 0 {
			t.Errorf("the refused call ran code: %+v", run.submits)
		}
		loop.Close()

		answered := make(chan result)
		go func() { answered <- h.call("run_code_long", long) }()
		within.Until(t, "the long run is submitted", func() bool { return f.count("POST", contract.PathExecutions) == 1 })
		if _, err := chunked.Open(dir, spec); !errors.Is(err, checkpoint.ErrBusy) {
			t.Errorf("a chunked run during the long run: %v", err)
		}
		<-answered

		spec.OnChange = chunked.Restart
		if loop, err = chunked.Open(dir, spec); err != nil {
			t.Fatal(err)
		}
		defer loop.Close()
		run.end(contract.StatusSucceeded)
		got := h.call("get_execution", map[string]any{"execution_id": "e1"}).run(t)
		if got.CheckpointSaved == nil || *got.CheckpointSaved || !strings.Contains(strings.Join(got.Notes, ""), "not saved") {
			t.Errorf("after the chunked run took the name over: %+v", got)
		}
	})
}

func TestPicturesAreImagesNeverTextAndBoundedInAll(t *testing.T) {
	tier.Long(t)
	h, f := serveFake(t, 20*time.Second)
	run := f.run("e1")
	img := image.NewGray(image.Rect(0, 0, 700, 500))
	for i := range img.Pix {
		img.Pix[i] = byte(i * i >> 7 * 37)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(base64.StdEncoding.EncodeToString(b.Bytes()))
	for range 6 {
		run.event(contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": payload, "text/plain": json.RawMessage(`"<Figure>"`)}})
	}
	run.print(strings.Repeat(strings.Repeat("\u0001<>&", 500)+"\n", 8))
	run.end(contract.StatusSucceeded)
	r := h.call("run_code_quick", map[string]any{"code": "plot"})
	images := 0
	for _, c := range r.Content {
		if c.Type == "image" {
			images++
			if c.MimeType != "image/png" && c.MimeType != "image/jpeg" || len(c.Data) > 500_000 {
				t.Errorf("%s of %d bytes", c.MimeType, len(c.Data))
			}
		}
	}
	if images == 0 || images > 4 || r.bytes > 900_000 {
		t.Errorf("%d images, %d bytes", images, r.bytes)
	}
	if bytes.Contains(r.Structured, payload[1:200]) {
		t.Error("base64 in structured content")
	}
	got := r.run(t)
	if len(got.Outputs) != 6 {
		t.Fatalf("%d outputs", len(got.Outputs))
	}
	for _, o := range got.Outputs {
		if saved, err := os.ReadFile(o.Path); err != nil || !bytes.Equal(saved, b.Bytes()) {
			t.Errorf("original at %q: %v", o.Path, err)
		}
	}
}
