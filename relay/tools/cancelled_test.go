package tools

import (
	"fmt"
	"net/http"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/within"
)

const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"no longer needed"}}`

// The answers are on their way when the cancellation comes: stdout is full.
func TestNothingFollowsForCancelledRequestsOfEveryKind(t *testing.T) {
	for id, request := range map[string]string{
		`2`:        `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		`"\u0061"`: `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"list_executions"}}`,
		`-2`:       `{"jsonrpc":"2.0","id":-2,"method":"tools/call","params":{"name":"no such tool"}}`,
		`"listen"`: listen(`"listen"`),
		`7`:        `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`,
	} {
		t.Run(request, func(t *testing.T) {
			l := serveLines(t, withoutRuntime(), maxHeld)
			l.send(`{"jsonrpc":"2.0","id":"first","method":"ping"}`)
			l.await()
			l.send("%s", request)
			l.send(cancelled, id)
			l.send(`{"jsonrpc":"2.0","method":"notifications/unknown"}`) // is read after the cancellation took effect
			if m := l.next(); m.ID != "first" {
				t.Errorf("%+v", m)
			}
			l.quiet()
		})
	}
}

// A call may wait for the end of others before it begins.
func TestACallCancelledBeforeItBeginsIsNotMade(t *testing.T) {
	h, f := serveFake(t)
	held := make(chan bool)
	f.on("GET", contract.PathKernel, func(*http.Request, []byte) (int, any) {
		<-held
		return 200, contract.Kernel{Status: contract.KernelIdle, KernelID: "kernel-1"}
	})
	for range maxCalls {
		h.begin("tools/call", params("check_colab_connection", map[string]any{}))
	}
	within.Until(t, "the calls", func() bool { return f.count("GET", contract.PathKernel) == maxCalls })
	id, _ := h.begin("tools/call", params("run_code_quick", map[string]any{"code": "x"}))
	h.cancel(id)
	h.request("ping", map[string]any{}) // is answered although all places are taken
	close(held)
	h.call("check_colab_connection", map[string]any{})
	if n := f.count("POST", contract.PathExecutions); n != 0 {
		t.Errorf("%d submits", n)
	}
}

func TestACancellationEndsOneRequestOnly(t *testing.T) {
	l := serveLines(t, withoutRuntime(), maxHeld)
	for _, id := range []string{`1`, `"1"`, `1.0`, `null`, `{"a":1}`, `[1]`, `true`, `""`, `"\ud800"`} {
		l.send(cancelled, id) // of a request that was never made
	}
	for _, id := range []string{`1`, `"1"`, `1`} { // one id after the other may be used again
		l.send(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id)
		if m := l.next(); fmt.Sprint(m.ID) != "1" || m.Error != nil {
			t.Errorf("%+v", m)
		}
	}
}
