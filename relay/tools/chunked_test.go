package tools

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
		got := &Chunked{Status: "failed", Completed: 17, ExecutionID: "b1", FailedIteration: new(int64(17))}
		p := got.problem(c.outcome, c.err, &batchOutput{})
		if c.code == "" && p == nil {
			continue
		}
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
			Kind      string
			Completed int
		}](t, got.Data)
		if !got.Exists || got.Timestamp == nil || got.Truncated || data.Kind != "chunked" || data.Completed != 17 || got.Path != checkpoint.Path(h.relay.cfg.CheckpointDir, "train") {
			t.Errorf("%s", r.Structured)
		}
	}
	got := decode[Checkpoint](t, h.call("get_checkpoint", map[string]any{"operation": "Über/all"}).Structured)
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

// keepChunked writes the record of a chunked run, train.
func keepChunked(t *testing.T, h *host) {
	t.Helper()
	if _, err := checkpoint.Save(h.relay.cfg.CheckpointDir, "train", json.RawMessage(chunkedRecord(17, "running", ""))); err != nil {
		t.Fatal(err)
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
