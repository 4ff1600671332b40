package op

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/contract"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A call may wait for the end of others before it begins.
func TestACallCancelledBeforeItBeginsIsNotMade(t *testing.T) {
	h, f := serveFake(t)
	held := make(chan bool)
	f.on("GET", contract.PathKernel, func(*http.Request, []byte) (int, any) {
		<-held
		return 200, contract.Kernel{Status: contract.KernelIdle, KernelID: "kernel-1"}
	})
	for range maxCalls {
		h.begin("check_colab_connection", map[string]any{}, nil)
	}
	within.Until(t, "the calls", func() bool { return f.count("GET", contract.PathKernel) == maxCalls })
	h.begin("run_code_quick", map[string]any{"code": "x"}, nil).cancel()
	close(held)
	h.call("check_colab_connection", map[string]any{})
	if n := f.count("POST", contract.PathExecutions); n != 0 {
		t.Errorf("%d submits", n)
	}
}

// The calls past maxHolding answer soon, with an execution_id, so that
// check_colab_connection can begin while many runs are waited for.
func TestOtherToolsAnswerWhileMoreCallsWaitThanMayBeInProgress(t *testing.T) {
	onOwnClock(t, 20*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		run := f.run("slow")
		var answers []*pending
		for range 2 * maxCalls {
			answers = append(answers, h.begin("run_code_quick", map[string]any{"code": "while True: pass"}, nil))
		}
		began := time.Now()
		h.call("check_colab_connection", map[string]any{})
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("a check waited %s behind runs", took)
		}
		run.end(contract.StatusSucceeded)
		for _, ch := range answers {
			<-ch.result
		}
	})
}

func TestProgressCarriesTheNewestLineIsPacedAndEndsBeforeTheAnswer(t *testing.T) {
	onOwnClock(t, 20*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		run := f.run("e1")
		var sent []Progress // also by a message that is late, which the race detector sees
		p := h.begin("run_code_long", map[string]any{"code": "x"}, func(p Progress) { sent = append(sent, p) })
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := range 800 {
			<-tick.C
			run.print(fmt.Sprintf("\rstep %d of 800", i))
		}
		run.end(contract.StatusSucceeded)
		h.await("run_code_long", p)
		before := len(sent)
		<-time.After(time.Minute)
		if n := len(sent); n < 2 || n > 40 || n != before {
			t.Errorf("%d messages in 4 s, %d after the answer", n, n-before)
		}
		last, steps := -1.0, 0
		for _, got := range sent {
			if got.Value <= last {
				t.Errorf("%+v after %f", got, last)
			}
			if last = got.Value; strings.HasPrefix(got.Message, "step ") {
				steps++
			}
		}
		if steps == 0 {
			t.Error("no message has a line of the run")
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
