package op

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

func TestWhatStopsAChunkedRunIsItsError(t *testing.T) {
	raised := contract.Execution{ExecutionID: "b1", Status: contract.StatusFailed, Error: &contract.ExecutionError{EName: "ValueError", EValue: "bad"}}
	died := contract.Execution{ExecutionID: "b1", Status: contract.StatusKernelDied}
	for name, c := range map[string]struct {
		outcome chunked.Outcome
		err     error
		code    string // empty if the run goes on
		message string
	}{
		"goes on":           {chunked.Outcome{}, nil, "", ""},
		"late":              {chunked.Outcome{}, context.DeadlineExceeded, "", ""},
		"unreachable":       {chunked.Outcome{}, &client.Error{Kind: client.KindUnreachable, Message: "m", Hint: "h"}, string(client.KindUnreachable), "the VM could not be reached (m)"},
		"raised":            {chunked.Outcome{Stop: &chunked.Stop{Execution: raised}}, nil, "failed", "iteration 17 raised an exception: the code raised “ValueError: bad”"},
		"kernel died":       {chunked.Outcome{Stop: &chunked.Stop{Execution: died}}, nil, "kernel_died", "the run stopped, with 17 iterations confirmed:"},
		"no run that fails": {chunked.Outcome{Stop: &chunked.Stop{Reason: "r"}}, nil, "failed", "the run stopped at iteration 17: “r”"},
	} {
		got := &Chunked{Status: "failed", Completed: 17, ExecutionID: "b1", FailedIteration: new(int64(17)), record: &chunked.Record{}}
		err := (&call{}).chunkedError(got, c.outcome, c.err, nil)
		if c.code == "" && err == nil {
			continue
		}
		p := problemOf(err)
		if p == nil || p.Code != c.code || !strings.HasPrefix(p.Message, c.message) || p.Hint == "" {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestGetCheckpointReadsBothKindsAndNamesWhatThereIs(t *testing.T) {
	h, f := serveFake(t)
	if got := decode[Checkpoint](t, h.call("get_checkpoint", map[string]any{"operation": "train"}).Structured); got.Exists || len(got.Names) != 0 || got.Timestamp != nil {
		t.Errorf("%+v", got)
	}
	keepChunked(t, h)
	run := f.run("e1")
	run.print("long one\n")
	run.end(contract.StatusSucceeded)
	h.call("run_code_long", map[string]any{"code": "x", "checkpoint_name": "Über/all"})
	for _, args := range []map[string]any{{"operation": "train"}, {"checkpoint_name": "train"}} {
		r := h.call("get_checkpoint", args)
		got := decode[Checkpoint](t, r.Structured)
		data := decode[struct {
			Data struct {
				Kind      string
				Completed int
			}
		}](t, r.Structured).Data
		if !got.Exists || got.Timestamp == nil || got.Truncated || data.Kind != "chunked" || data.Completed != 17 || got.Path != checkpoint.Path(h.relay.cfg.CheckpointDir, "train") {
			t.Errorf("%s", r.Structured)
		}
	}
	r := h.call("get_checkpoint", map[string]any{"operation": "Über/all"})
	if kept := decode[struct{ Data Run }](t, r.Structured).Data; kept.Stdout != "long one\n" {
		t.Errorf("%s", r.Structured)
	}
	if o := h.call("get_checkpoint", map[string]any{"checkpoint_name": "train", "operation": "other"}).outcome(t); o.Error == nil || o.Error.Code != codeBadRequest {
		t.Errorf("two names: %+v", o.Error)
	}
	got := decode[Checkpoint](t, h.call("get_checkpoint", map[string]any{"operation": "none"}).Structured)
	if got.Exists || fmt.Sprint(got.Names) != "[train Über/all]" {
		t.Errorf("%+v", got)
	}
}

// keepChunked writes the record of a chunked run, train.
func keepChunked(t *testing.T, h *host) {
	t.Helper()
	if _, err := checkpoint.Save(h.relay.cfg.CheckpointDir, "train", json.RawMessage(chunkedRecord(17, "running", ""))); err != nil {
		t.Fatal(err)
	}
}

func TestGetCheckpointShowsPlainDataUnlessItIsTooLong(t *testing.T) {
	dir := t.TempDir()
	h := startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return newFake(t).runtime(t), nil }, CheckpointDir: dir})
	for data, want := range map[string]string{
		`{"stdout":"a\u001b[2Jb\u2066","k\u202e":[1.50,{"x":"\u009b1A"}]}`: `{"k":[1.50,{"x":""}],"stdout":"ab"}`,
		`{"a":12345678901234567890,"b":"as it is\n"}`:                      `{"a":12345678901234567890,"b":"as it is\n"}`,
		`{"results":"` + strings.Repeat("x", maxDataBytes) + `"}`:          "",
	} {
		if _, err := checkpoint.Save(dir, "c", json.RawMessage(data)); err != nil {
			t.Fatal(err)
		}
		r := h.call("get_checkpoint", map[string]any{"operation": "c"})
		got := decode[struct {
			Data      json.RawMessage
			Truncated bool
			Path      string
		}](t, r.Structured)
		if string(got.Data) != want || got.Truncated != (want == "") || got.Path == "" || r.bytes > 10_000 {
			t.Errorf("%.80s: %d bytes, %s", data, r.bytes, r.Structured)
		}
	}
}

func TestRunCodeLongDoesNotOverwriteAChunkedRun(t *testing.T) {
	h, f := serveFake(t)
	keepChunked(t, h)
	f.run("e1").end(contract.StatusSucceeded)
	got := h.call("run_code_long", map[string]any{"code": "x", "checkpoint_name": "train"}).run(t)
	if got.CheckpointSaved == nil || *got.CheckpointSaved || !strings.Contains(strings.Join(got.Notes, ""), "chunked run") {
		t.Errorf("%+v", got)
	}
	if o := h.call("run_code_long", map[string]any{"code": "x", "checkpoint_name": "mine"}).run(t); o.CheckpointSaved == nil || !*o.CheckpointSaved {
		t.Errorf("%+v", o)
	}
	if o := h.call("run_chunked_operation", map[string]any{"loop_code": "i", "n_iterations": 3, "checkpoint_name": "mine"}).outcome(t); o.Error == nil || o.Error.Code != "conflict" {
		t.Errorf("over a long run's answer: %+v", o)
	}
}
