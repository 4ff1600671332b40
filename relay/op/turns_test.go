package op

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
	"colabrelay/shared/within"
)

// twoRuntimes is a host and a relay with the runtimes "hung" and "honest", which is the default.
func twoRuntimes(t *testing.T) (h *host, hung, honest *fakeExecutor) {
	t.Helper()
	hung, honest = newFake(t), newFake(t)
	byName := map[string]runtimes.Runtime{"hung": hung.runtime(t), "honest": honest.runtime(t)}
	h = startHost(t, Config{
		Resolve: func(name string) (runtimes.Runtime, error) {
			if name == "" {
				name = "honest"
			}
			rt, ok := byName[name]
			if rt.Name = name; !ok {
				return runtimes.Runtime{}, errors.New("no such runtime")
			}
			return rt, nil
		},
		SaveDir: t.TempDir(), CheckpointDir: t.TempDir(), Hold: time.Hour, Version: "test",
	})
	return h, hung, honest
}

// A hundred calls of one runtime that hangs, and more that wait for their turn, keep no call of
// another runtime waiting, and shorten none.
func TestARuntimeThatHangsTakesNoTurnOfAnother(t *testing.T) {
	h, hung, honest := twoRuntimes(t)
	release := make(chan bool)
	hung.on("POST", contract.PathExecutions, func(r *http.Request, _ []byte) (int, any) {
		<-release
		return 0, &contract.Error{Code: contract.CodeShuttingDown, Message: "released"}
	})
	waits := make(chan float64, 2)
	honest.on("POST", contract.PathExecutions, func(_ *http.Request, body []byte) (int, any) {
		var s contract.Submit
		_ = json.Unmarshal(body, &s)
		waits <- s.WaitSeconds
		return 200, contract.Execution{ExecutionID: "e1", RequestID: s.RequestID, Status: contract.StatusSucceeded, KernelID: "kernel-1", End: true}
	})
	var answers []*pending
	for range 2 * maxCalls {
		answers = append(answers, h.begin("run_code_quick", map[string]any{"code": "x", "runtime_name": "hung"}, nil))
	}
	within.Until(t, "the calls of the runtime that hangs", func() bool { return hung.count("POST", contract.PathExecutions) == maxCalls })
	for _, runtime := range []string{"honest", ""} {
		if r := h.call("run_code_quick", map[string]any{"code": "x", "runtime_name": runtime}); r.IsError {
			t.Errorf("%+v", r.Content)
		}
	}
	for range 2 {
		if wait := <-waits; wait < 20 {
			t.Errorf("a run was waited for %v s, because others wait for another runtime", wait)
		}
	}
	if r := h.call("run_code_quick", map[string]any{"code": "x", "runtime_name": "none"}); !r.IsError {
		t.Error("a runtime that does not exist ran code")
	}
	if n := hung.count("POST", contract.PathExecutions); n != maxCalls {
		t.Errorf("%d calls at once of one runtime", n)
	}
	close(release)
	for _, ch := range answers {
		<-ch.result
	}
}
