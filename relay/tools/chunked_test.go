package tools

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// batches makes the fake run the job of a chunked run as chunked/run.py would: each iteration
// prints its number. Iteration fails raises. relay/chunked tests the real thing.
func (f *fakeExecutor) batches(t *testing.T, fails int64) {
	f.answer("GET", contract.PathExecutions, contract.ExecutionList{})
	f.on("POST", contract.PathJobs, func(_ *http.Request, body []byte) (int, any) {
		var s contract.JobSubmit
		if err := json.Unmarshal(body, &s); err != nil || s.Loop == nil || len(s.Steps) != 1 || !s.Loop.Unstored || s.Loop.TimeoutSeconds != 3600 {
			t.Errorf("submit %+v %v", s, err)
		}
		j := f.chunkedJob(s, fails)
		f.on("GET", contract.PathJobs+"/"+s.JobID, func(r *http.Request, _ []byte) (int, any) {
			answer := j
			answer.From, _ = strconv.Atoi(r.URL.Query().Get("from"))
			answer.From = min(answer.From, len(j.Steps))
			answer.Steps = j.Steps[answer.From:]
			return http.StatusOK, answer
		})
		head := j
		head.Steps = nil
		return http.StatusOK, head
	})
}

// chunkedJob runs a job and returns it.
func (f *fakeExecutor) chunkedJob(s contract.JobSubmit, fails int64) contract.Job {
	var text string
	var arguments []struct {
		Key    string
		Marked int64
		N      int64
		Batch  int64 `json:"batch_size"`
	}
	code := s.Steps[0].Code
	_ = json.NewDecoder(strings.NewReader(code[strings.Index(code, `"[{\"key\"`):])).Decode(&text)
	_ = json.Unmarshal([]byte(text), &arguments)
	o := arguments[0]
	now := time.Now()
	j := contract.Job{JobID: s.JobID, State: contract.JobFinished, KernelID: "kernel-1", StepCount: 1, CreatedAt: now, FinishedAt: &now}
	var e *contract.Execution
	add := func(ev contract.Event) {
		ev.Offset = int64(len(e.Events))
		e.Events = append(e.Events, ev)
	}
	mark := func(fields string) {
		data := json.RawMessage(fmt.Sprintf(`{"run":%q,%s}`, o.Key, fields))
		add(contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"application/vnd.colab-relay.iteration+json": data}})
	}
	entry := func(run func()) {
		e = &contract.Execution{ExecutionID: fmt.Sprint("b", len(j.Steps)), Job: &contract.JobRef{JobID: s.JobID, Index: len(j.Steps)}, Status: contract.StatusSucceeded, KernelID: "kernel-1", StartedAt: &now, FinishedAt: &now, End: true}
		run()
		e.NextOffset = int64(len(e.Events))
		f.answer("GET", contract.PathExecutions+"/"+e.ExecutionID, *e)
		j.Steps = append(j.Steps, contract.JobEntry{ExecutionID: e.ExecutionID, Status: contract.StepStatus(e.Status)})
	}
	entry(func() { mark(fmt.Sprintf(`"event":"start","done":%d`, o.Marked)) })
	for i := o.Marked; i < o.N && j.State == contract.JobFinished; {
		entry(func() {
			for end := min(o.N, i+o.Batch); i < end; i++ {
				if i == fails {
					mark(fmt.Sprintf(`"event":"failed","done":%d,"iteration":%d,"seconds":0.1,"changed":[]`, i, i))
					add(contract.Event{Type: contract.EventError, EName: "ValueError", EValue: "bad", Traceback: []string{"\x1b[31mline 1\x1b[0m", "ValueError: bad"}})
					e.Status, e.Error = contract.StatusFailed, &contract.ExecutionError{EName: "ValueError", EValue: "bad"}
					j.State, j.Cause, j.Reason = contract.JobFailed, contract.CauseStepFailed, "a step failed"
					return
				}
				add(contract.Event{Type: contract.EventStream, Name: "stdout", Text: fmt.Sprintf("now %d\n", i)})
				mark(fmt.Sprintf(`"event":"done","done":%d,"count":1,"seconds":0.1,"slowest":0.1,"values":[{"i":%d,"result":"[%d]"}]`, i+1, i, i))
			}
			mark(fmt.Sprintf(`"event":"round","done":%d,"carried":[]`, i))
			if i == o.N {
				mark(fmt.Sprintf(`"event":"finished","done":%d`, i))
			}
		})
	}
	j.Entries, j.Next = len(j.Steps), len(j.Steps)
	return j
}

func chunkedCall(more map[string]any) map[string]any {
	args := map[string]any{"setup_code": "", "loop_code": "print('now', i)", "n_iterations": 25, "batch_size": 10, "checkpoint_name": "train"}
	for k, v := range more {
		args[k] = v
	}
	return args
}

func TestAChunkedRunSaysItsPaceAndTheTimeLeft(t *testing.T) {
	for name, c := range map[string]struct {
		done, n int64
		pace    float64
		status  chunked.Status
		want    string
	}{
		"usual":             {120, 2000, 0.42, "running", "120 of 2,000 iterations done (6%), 0.42 s per iteration, about 13 min left, status running\n"},
		"nothing timed yet": {0, 2000, 0, "running", "0 of 2,000 iterations done (0%), status running\n"},
		"finished":          {2000, 2000, 0.42, "finished", "2,000 of 2,000 iterations done (100%), 0.42 s per iteration, status finished\n"},
		"fast":              {1, 1_000_000, 0.00012, "running", "1 of 1,000,000 iterations done (0%), 0.12 ms per iteration, about 2 min left, status running\n"},
	} {
		got := &Chunked{Status: string(c.status), Completed: c.done, Remaining: c.n - c.done, ProgressPct: *round(100*float64(c.done)/float64(c.n), 10), pace: c.pace}
		var b words
		got.text(&b)
		if line, _, _ := strings.Cut(b.String(), "Checkpoint"); line != c.want {
			t.Errorf("%s: %q", name, line)
		}
	}
}

func TestChunkedRunFinishesInOneCall(t *testing.T) {
	h, f := serveFake(t)
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
	if again.Completed != 25 || f.count("POST", contract.PathJobs) != 1 {
		t.Errorf("run again: %+v", again)
	}
}

func TestFailedIterationIsReportedWithItsErrorAndTheWayOn(t *testing.T) {
	h, f := serveFake(t)
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

func TestGetCheckpointReadsBothKindsAndNamesWhatThereIs(t *testing.T) {
	h, f := serveFake(t)
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
	if o := h.call("get_checkpoint", map[string]any{"checkpoint_name": "train", "operation": "other"}).outcome(t); o.Error == nil || o.Error.Code != codeBadRequest {
		t.Errorf("two names: %+v", o.Error)
	}
	got = decode[Checkpoint](t, h.call("get_checkpoint", map[string]any{"operation": "none"}).Structured)
	if got.Exists || fmt.Sprint(got.Names) != "[train Über/all]" {
		t.Errorf("%+v", got)
	}
}

func TestGetCheckpointShortensWhatDoesNotFitAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	h := startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return newFake(t).runtime(t), nil }, CheckpointDir: dir})
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
}

func TestRunCodeLongDoesNotOverwriteAChunkedRun(t *testing.T) {
	h, f := serveFake(t)
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
