package tools

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// batches makes the fake run chunked batches as loop.py would: each iteration
// prints its number. Iteration fails raises. relay/chunked tests the real thing.
func (f *fakeExecutor) batches(t *testing.T, fails int64) {
	n := 0
	f.answer("GET", contract.PathExecutions, contract.ExecutionList{})
	f.on("POST", contract.PathExecutions, func(_ *http.Request, body []byte) (int, any) {
		var s contract.Submit
		if err := json.Unmarshal(body, &s); err != nil || !s.Unstored || s.TimeoutSeconds != 300 {
			t.Errorf("submit %+v %v", s, err)
		}
		var text string
		var arguments []struct {
			Key    string
			Lo, Hi int64
		}
		_ = json.NewDecoder(strings.NewReader(s.Code[strings.Index(s.Code, `"[{\"key\"`):])).Decode(&text)
		_ = json.Unmarshal([]byte(text), &arguments)
		o := arguments[0]
		n++
		now := time.Now()
		e := contract.Execution{ExecutionID: fmt.Sprint("b", n), Status: contract.StatusSucceeded, KernelID: "kernel-1", StartedAt: &now, FinishedAt: &now, End: true}
		add := func(ev contract.Event) {
			ev.Offset = int64(len(e.Events))
			e.Events = append(e.Events, ev)
		}
		mark := func(fields string) {
			data := json.RawMessage(fmt.Sprintf(`{"run":%q,%s}`, o.Key, fields))
			add(contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"application/vnd.colab-relay.iteration+json": data}})
		}
		mark(fmt.Sprintf(`"event":"start","done":%d`, o.Lo))
		for i := o.Lo; i < o.Hi; i++ {
			if i == fails {
				mark(fmt.Sprintf(`"event":"failed","done":%d,"seconds":0.1`, i))
				add(contract.Event{Type: contract.EventError, EName: "ValueError", EValue: "bad", Traceback: []string{"\x1b[31mline 1\x1b[0m", "ValueError: bad"}})
				e.Status, e.Error = contract.StatusFailed, &contract.ExecutionError{EName: "ValueError", EValue: "bad"}
				break
			}
			add(contract.Event{Type: contract.EventStream, Name: "stdout", Text: fmt.Sprintf("now %d\n", i)})
			mark(fmt.Sprintf(`"event":"done","done":%d,"count":1,"seconds":0.1,"slowest":0.1,"values":[{"i":%d,"result":"[%d]"}]`, i+1, i, i))
		}
		e.NextOffset = int64(len(e.Events))
		return http.StatusOK, e
	})
}

func chunkedCall(more map[string]any) map[string]any {
	args := map[string]any{"setup_code": "", "loop_code": "print('now', i)", "n_iterations": 25, "checkpoint_name": "train"}
	for k, v := range more {
		args[k] = v
	}
	return args
}

func TestTinyBatchesAreReportedToBeSlow(t *testing.T) {
	for name, c := range map[string]struct {
		state chunked.Record
		size  int64
		want  string
	}{
		"fast iterations":     {chunked.Record{N: 1e6, Done: 1000, Timed: 1000, MeanSeconds: 1e-3}, 10, "batch_size=5000 "},
		"trivial ones":        {chunked.Record{N: 1e6, Done: 1000, Timed: 1000, MeanSeconds: 1e-7}, 10, "batch_size=1000000 "},
		"slow ones":           {chunked.Record{N: 1e6, Done: 1000, Timed: 1000, MeanSeconds: .1}, 10, ""},
		"large batches":       {chunked.Record{N: 1e6, Done: 1000, Timed: 1000, MeanSeconds: 1e-3}, 1000, ""},
		"hardly any are left": {chunked.Record{N: 1050, Done: 1000, Timed: 1000, MeanSeconds: 1e-3}, 10, ""},
		"too early to know":   {chunked.Record{N: 1e6, Done: 10, Timed: 10, MeanSeconds: 1e-3}, 10, ""},
	} {
		if got := batchHint(&c.state, c.size); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := fewer(make([]string, 30)); len(got) != 5 || got[4] != "further notes on output: 26" {
		t.Errorf("%q", got)
	}
}

func TestChunkedRunFinishesInOneCall(t *testing.T) {
	h, f := serveFake(t, 10*time.Second)
	f.batches(t, -1)
	r := h.call("run_chunked_operation", chunkedCall(nil))
	got := decode[Chunked](t, r.Structured)
	if r.IsError || len(got.Results) != 5 {
		t.Fatalf("%s", r.Structured)
	}
	want := Chunked{Status: "finished", Completed: 25, ProgressPct: 100, ExecutionID: "b3", KernelID: "kernel-1"}
	sameFields(t, want, got, "Status", "Completed", "Remaining", "ProgressPct", "CanContinue", "NextCommand", "FailedIteration", "ExecutionID", "KernelID")
	if strings.Count(got.Output, "now ") != 25 || strings.Contains(r.Content[0].Text, "vnd.colab-relay") {
		t.Errorf("output %q", got.Output)
	}
	sameFields(t, chunked.Value{Iteration: 24, Value: json.RawMessage("[24]")}, got.Results[4], "Iteration", "Value")
	again := decode[Chunked](t, h.call("run_chunked_operation", chunkedCall(nil)).Structured)
	if again.Completed != 25 || f.count("POST", contract.PathExecutions) != 3 {
		t.Errorf("run again: %+v", again)
	}
}

func TestASyntaxErrorIsPrintedOnce(t *testing.T) {
	failed := contract.Execution{Status: contract.StatusFailed, Error: &contract.ExecutionError{EName: "SyntaxError", EValue: "invalid syntax (<loop_code>, line 2)"}}
	raised := &render.Raised{EName: "SyntaxError", EValue: failed.Error.EValue, Traceback: "  File <loop_code>, line 2\n    if x\nSyntaxError: invalid syntax"}
	got := (&Chunked{}).problem(chunked.Outcome{Stop: &chunked.Stop{Execution: failed, Refused: true}}, nil, &batchOutput{raised: raised})
	want := Problem{Message: "nothing was run: SyntaxError: invalid syntax (<loop_code>, line 2)", Traceback: "  File <loop_code>, line 2\n    if x"}
	sameFields(t, want, *got, "Message", "Traceback")
}

func TestFailedIterationIsReportedWithItsErrorAndTheWayOn(t *testing.T) {
	h, f := serveFake(t, 10*time.Second)
	f.batches(t, 17)
	r := h.call("run_chunked_operation", chunkedCall(nil))
	got, o := decode[Chunked](t, r.Structured), r.outcome(t)
	if o.Error == nil || o.Error.Code != "failed" || o.Error.EName != "ValueError" || !strings.Contains(o.Error.Traceback, "line 1") || strings.Contains(o.Error.Traceback, "\x1b") ||
		!strings.HasPrefix(o.Error.Message, "iteration 17 raised") || !strings.Contains(o.Error.Hint, `on_change="continue"`) {
		t.Errorf("%+v", o.Error)
	}
	want := Chunked{Status: "failed", Completed: 17, Remaining: 8, ProgressPct: 68, FailedIteration: new(int64(17)), CanContinue: true}
	sameFields(t, want, got, "Status", "Completed", "Remaining", "ProgressPct", "FailedIteration", "CanContinue")
	if !strings.Contains(got.NextCommand, "on_change") {
		t.Errorf("%s", r.Structured)
	}
	f.batches(t, -1)
	corrected := map[string]any{"loop_code": "print('better', i)"}
	if o := h.call("run_chunked_operation", chunkedCall(corrected)).outcome(t); o.Error == nil || o.Error.Code != "conflict" || !strings.Contains(o.Error.Message, "loop_code changed after 17 of 25") || !strings.Contains(o.Error.Hint, "on_change") {
		t.Errorf("changed: %+v", o.Error)
	}
	corrected["on_change"] = "continue"
	if got := decode[Chunked](t, h.call("run_chunked_operation", chunkedCall(corrected)).Structured); got.Completed != 25 || got.Status != "finished" || !strings.HasPrefix(got.Output, "now 17\n") {
		t.Errorf("%+v", got)
	}
}

func TestChunkedRunReportsThatTheVMIsGoneAndWhatIsKept(t *testing.T) {
	onOwnClock(t, 3*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		f.batches(t, 17)
		kept := decode[Chunked](t, h.call("run_chunked_operation", chunkedCall(nil)).Structured).Completed
		f.on("POST", contract.PathExecutions, func(*http.Request, []byte) (int, any) { panic(http.ErrAbortHandler) })
		r := h.call("run_chunked_operation", chunkedCall(nil))
		got, o := decode[Chunked](t, r.Structured), r.outcome(t)
		if o.Error == nil || o.Error.Code != string(client.KindUnreachable) || kept == 0 || got.Completed != kept || !got.CanContinue || got.NextCommand == "" {
			t.Errorf("%s", r.Structured)
		}
	})
}

func TestChunkedRunReportsItsProgressInIterations(t *testing.T) {
	onOwnClock(t, 3*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		f.batches(t, -1)
		served := f.answers["POST "+contract.PathExecutions]
		f.on("POST", contract.PathExecutions, func(r *http.Request, body []byte) (int, any) {
			timer := time.NewTimer(700 * time.Millisecond)
			defer timer.Stop()
			<-timer.C
			return served(r, body)
		})
		p := params("run_chunked_operation", chunkedCall(nil))
		p["_meta"] = map[string]any{"progressToken": 5}
		_, ch := h.begin("tools/call", p)
		h.result("run_chunked_operation", h.await(ch))
		h.mu.Lock()
		defer h.mu.Unlock()
		var lines []string
		for _, m := range h.notes {
			note := decode[struct {
				Message string
				Total   float64
			}](t, m.Params)
			lines = append(lines, note.Message)
			if note.Total != 25 {
				t.Errorf("total %v", note.Total)
			}
		}
		if !strings.Contains(strings.Join(lines, "\n"), "10/25 iterations, 0.1 s each") {
			t.Errorf("%q", lines)
		}
	})
}

func TestGetCheckpointReadsBothKindsAndNamesWhatThereIs(t *testing.T) {
	h, f := serveFake(t, 10*time.Second)
	if got := decode[Checkpoint](t, h.call("get_checkpoint", map[string]any{"operation": "train"}).Structured); got.Exists || len(got.Names) != 0 || got.Timestamp != nil {
		t.Errorf("%+v", got)
	}
	f.batches(t, 17)
	h.call("run_chunked_operation", chunkedCall(nil))
	run := f.run("e1")
	run.print("long one\n")
	run.end(contract.StatusSucceeded)
	h.call("run_code_long", map[string]any{"code": "x", "checkpoint_name": "Über/all"})

	r := h.call("get_checkpoint", map[string]any{"operation": "train"})
	got := decode[Checkpoint](t, r.Structured)
	data := decode[struct {
		Kind, Status string
		Completed    int
		Ranges       []struct{ From, To int }
		Results      []struct {
			I     int
			Value []int
		}
		Failure struct{ Iteration int }
	}](t, got.Data)
	if !got.Exists || got.Timestamp == nil || got.Truncated || data.Kind != "chunked" || data.Status != "failed" || data.Completed != 17 || len(data.Ranges) != 1 || data.Failure.Iteration != 17 ||
		len(data.Results) != 17 || data.Results[16].Value[0] != 16 || filepath.Base(got.Path) != "train.json" {
		t.Errorf("%s", r.Structured)
	}
	got = decode[Checkpoint](t, h.call("get_checkpoint", map[string]any{"operation": "Über/all"}).Structured)
	if kept := decode[Run](t, got.Data); !got.Exists || kept.Stdout != "long one\n" {
		t.Errorf("%+v", got)
	}
	for _, args := range []map[string]any{{"checkpoint_name": "train"}, {"checkpoint_name": "train", "operation": "train"}} {
		if got := decode[Checkpoint](t, h.call("get_checkpoint", args).Structured); !got.Exists || got.Operation != "train" {
			t.Errorf("%v: %+v", args, got)
		}
	}
	for _, args := range []map[string]any{{"checkpoint_name": "train", "operation": "other"}, {}, {"checkpoint_name": "", "operation": ""}, {"checkpoint_name": strings.Repeat("n", 201)}} {
		if o := h.call("get_checkpoint", args).outcome(t); o.Error == nil || o.Error.Code != codeBadRequest || o.Error.Hint == "" {
			t.Errorf("%v: %+v", args, o.Error)
		}
	}
	got = decode[Checkpoint](t, h.call("get_checkpoint", map[string]any{"operation": "none"}).Structured)
	if got.Exists || fmt.Sprint(got.Names) != "[train Über/all]" {
		t.Errorf("%+v", got)
	}
}

func TestGetCheckpointShortensWhatDoesNotFitAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	h := startHost(t, Config{Resolve: func(string) (Runtime, error) { return newFake(t).runtime(t), nil }, CheckpointDir: dir})
	results := []any{}
	for i := range 3000 {
		results = append(results, map[string]any{"i": i, "value": strings.Repeat("x", 50)})
	}
	if _, err := checkpoint.Save(dir, "big", map[string]any{"results": results, "stdout": strings.Repeat("long ", 20_000), "number": json.Number("12345678901234567890")}); err != nil {
		t.Fatal(err)
	}
	r := h.call("get_checkpoint", map[string]any{"operation": "big"})
	got := decode[Checkpoint](t, r.Structured)
	if !got.Truncated || len(got.Data) > maxDataBytes || !strings.Contains(string(got.Data), `{"i":2999,`) || !strings.Contains(string(got.Data), "12345678901234567890") || r.bytes > 100_000 {
		t.Errorf("%d bytes of data, %d in all: %.300s", len(got.Data), r.bytes, got.Data)
	}
	if err := os.WriteFile(checkpoint.Path(dir, "big"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for tool, args := range map[string]map[string]any{"get_checkpoint": {"operation": "big"}, "run_chunked_operation": chunkedCall(map[string]any{"checkpoint_name": "big"})} {
		if o := h.call(tool, args).outcome(t); o.Error == nil || o.Error.Code != hint.CodeDamaged {
			t.Errorf("%s of a damaged file: %+v", tool, o.Error)
		}
	}
	if _, err := checkpoint.Save(dir, "list", []int{1}); err != nil { // not what the relay saves
		t.Fatal(err)
	}
	if o := h.call("get_checkpoint", map[string]any{"operation": "list"}).outcome(t); o.Error == nil || o.Error.Code != hint.CodeDamaged {
		t.Errorf("a list is shown as data: %+v", o.Error)
	}
}

func TestRunCodeLongDoesNotOverwriteAChunkedRun(t *testing.T) {
	h, f := serveFake(t, 10*time.Second)
	f.batches(t, 17)
	h.call("run_chunked_operation", chunkedCall(nil))
	f.run("e1").end(contract.StatusSucceeded)
	got := h.call("run_code_long", map[string]any{"code": "x", "checkpoint_name": "train"}).run(t)
	if got.CheckpointSaved == nil || *got.CheckpointSaved || !strings.Contains(strings.Join(got.Notes, ""), "chunked run") {
		t.Errorf("%+v", got)
	}
	if o := h.call("run_code_long", map[string]any{"code": "x", "checkpoint_name": "mine"}).run(t); o.CheckpointSaved == nil || !*o.CheckpointSaved {
		t.Errorf("%+v", o)
	}
	f.batches(t, -1)
	if got := decode[Chunked](t, h.call("run_chunked_operation", chunkedCall(nil)).Structured); got.Completed != 25 {
		t.Errorf("%+v", got)
	}
	if o := h.call("run_chunked_operation", chunkedCall(map[string]any{"checkpoint_name": "mine"})).outcome(t); o.Error == nil || o.Error.Code != "conflict" {
		t.Errorf("over a long run's answer: %+v", o)
	}
}
