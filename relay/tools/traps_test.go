package tools

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Calls past maxCalls wait for the end of one, and must not keep the relay from reading.
func TestPingAnswersAtOnceAmongManySlowCalls(t *testing.T) {
	h, f := serveFake(t)
	run := f.run("slow")
	var answers []<-chan message
	for range 250 {
		_, ch := h.begin("tools/call", params("run_code_quick", map[string]any{"code": "while True: pass"}))
		answers = append(answers, ch)
	}
	for range 10 {
		h.request("ping", map[string]any{})
	}
	run.end(contract.StatusSucceeded)
	for _, ch := range answers {
		h.await(ch)
	}
}

// The calls past maxHolding answer soon, with an execution_id, so that
// check_colab_connection can begin while many runs are waited for.
func TestOtherToolsAnswerWhileMoreCallsWaitThanMayBeInProgress(t *testing.T) {
	onOwnClock(t, 20*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		run := f.run("slow")
		var answers []<-chan message
		for range 2 * maxCalls {
			_, ch := h.begin("tools/call", params("run_code_quick", map[string]any{"code": "while True: pass"}))
			answers = append(answers, ch)
		}
		began := time.Now()
		h.call("check_colab_connection", map[string]any{})
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("a check waited %s behind runs", took)
		}
		run.end(contract.StatusSucceeded)
		for _, ch := range answers {
			h.await(ch)
		}
	})
}

// The SDK drops progress messages sent fast and may send some after the answer.
func TestProgressCarriesTheNewestLineIsPacedAndEndsBeforeTheAnswer(t *testing.T) {
	onOwnClock(t, 20*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		run := f.run("e1")
		p := params("run_code_long", map[string]any{"code": "x"})
		p["_meta"] = map[string]any{"progressToken": "token-7"}
		id, ch := h.begin("tools/call", p)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := range 800 {
			<-tick.C
			run.print(fmt.Sprintf("\rstep %d of 800", i))
		}
		run.end(contract.StatusSucceeded)
		h.result("run_code_long", h.await(ch))
		h.request("ping", map[string]any{}) // anything sent late has arrived now

		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.notes); n < 2 || n > 40 {
			t.Errorf("%d messages in 4 s", n)
		}
		last, steps := -1.0, 0
		for _, m := range h.notes {
			got := decode[struct {
				ProgressToken string
				Progress      float64
				Message       string
			}](t, m.Params)
			if m.Method != "notifications/progress" || got.ProgressToken != "token-7" || got.Progress <= last {
				t.Errorf("%s %s", m.Method, m.Params)
			}
			if last = got.Progress; strings.HasPrefix(got.Message, "step ") {
				steps++
			}
		}
		if steps == 0 {
			t.Error("no message has a line of the run")
		}
		if after := h.order[slices.Index(h.order, "answer "+id):]; slices.Contains(after, "note") {
			t.Error("progress after the answer")
		}
	})
}

// The SDK answers a panic with a JSON-RPC error, which hosts show as a broken server.
func TestAPanicIsAnInternalErrorOfThatCall(t *testing.T) {
	h := startHost(t, Config{Toolsets: toolsets.All, Resolve: func(string) (runtimes.Runtime, error) { panic("a fault of ours") }})
	for name, c := range calls {
		o := h.call(name, json.RawMessage(c.args)).outcome(t)
		if o.Error == nil || o.Error.Code != codeInternal || strings.Contains(o.Error.Message, "fault of ours") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
