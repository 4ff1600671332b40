package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/tools"
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

// What a cancelled call left must be known to the next one, which else submits the same run again.
func TestACallBeginsAfterTheEndOfThoseThatWereCancelledBefore(t *testing.T) {
	order := make(chan string, 3)
	l := serveFake(t, func(ctx context.Context, q tools.Request, send func(tools.Result)) {
		order <- "begins"
		if string(q.Arguments) == "1" {
			<-ctx.Done()
			if !q.Cancelled() {
				t.Error("it was not cancelled")
			}
			order <- "ended"
		}
		send(tools.Result{Text: "x"})
	})
	l.call("1", `,"arguments":1`)
	if got := <-order; got != "begins" {
		t.Fatal(got)
	}
	l.send(cancelled, "1")
	l.call("2", "")
	if m := l.next(); fmt.Sprint(m.ID) != "2" {
		t.Errorf("%+v", m)
	}
	if first := <-order; first != "ended" {
		t.Error("the second call began before the end of the first")
	}
}

// Its context has ended when it begins, so it submits nothing.
func TestACallWhoseCancellationWasReadBeforeItBeginsHasEnded(t *testing.T) {
	ended := make(chan bool, 1)
	s := newStdio(New(fake(func(ctx context.Context, _ tools.Request, _ func(tools.Result)) { ended <- ctx.Err() != nil }), "", ""), strings.NewReader(""), io.Discard, maxHeld)
	ctx, stop := context.WithCancel(t.Context())
	q := &request{id: json.RawMessage("1"), message: message{Method: string(mcp.MethodToolsCall)}, done: make(chan struct{}), out: &s.out, stop: stop}
	s.inFlight.add(q)
	s.inFlight.cancel(q.id)
	if s.answer(ctx, q); !<-ended {
		t.Error("the call was made")
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
