package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/render"
	"colabrelay/relay/tools"
)

// Hosts must not notice which calls the relay handles itself.
func TestCallsAreAnsweredAsTheSDKAnswers(t *testing.T) {
	s := withoutRuntime()
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	served := make(chan error)
	go func() { served <- s.Serve(context.Background(), stdin, stdout) }()
	answers := bufio.NewReader(out)
	modern := func(fields string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions","_meta":{"io.modelcontextprotocol/protocolVersion":` + fields + `}}}`
	}
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":"<a> \u00e9\"","method":"tools/call","params":{"name":"list_executions"}}`,
		` { "id" : -7.5 , "params" : { "arguments" : null , "name" : "list_executions" , "_meta" : { "progressToken" : null } } , "method" : "tools/call" , "jsonrpc" : "2.0" } `,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions","arguments":[1]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code_quick","arguments":{"code":"` + strings.Repeat("x", 1<<20) + `"}}}`,
		modern(`"2025-06-18"`),
		modern(`"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`),
		modern(`"2026-07-28"`),
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no such tool"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`,
	} {
		want, err := json.Marshal(s.sdk.HandleMessage(t.Context(), json.RawMessage(line)))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, line+"\n")
		got, err := answers.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decode[map[string]any](t, want), decode[map[string]any](t, got)); diff != "" {
			t.Errorf("%.200s: (-SDK +relay)\n%s", line, diff)
		}
	}
	in.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A host may close stdin while a call waits. Nothing may be written after Serve has returned.
// A host that reads nothing must not keep the relay alive after it has closed stdin.
func TestAHostThatReadsNoAnswersDoesNotKeepTheRelay(t *testing.T) {
	s := withoutRuntime()
	out, stdout := io.Pipe() // a write blocks until it is read
	defer out.Close()        // lets the goroutine of the write that hangs end
	calls := strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`+"\n", 20)
	if err := s.Serve(t.Context(), strings.NewReader(calls), stdout); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfStdinEndsCallsInProgress(t *testing.T) {
	const calls = 10
	arrived := make(chan bool, calls)
	s := New(fake(func(ctx context.Context, q tools.Request, send func(tools.Result)) {
		arrived <- true
		<-ctx.Done()
		send(tools.Result{Text: fmt.Sprintf("ended, cancelled: %t", q.Cancelled())})
	}), "", "", nil)
	stdin, in := io.Pipe()
	var stdout strings.Builder
	served := make(chan error)
	go func() { served <- s.Serve(context.Background(), stdin, &stdout) }()
	for i := range calls {
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t"}}`+"\n", i)
	}
	for range calls {
		<-arrived
	}
	in.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := strings.Count(stdout.String(), "ended, cancelled: false"); n != calls {
		t.Errorf("%d answers, want %d", n, calls)
	}
}

// Calls that wait must not keep the relay from reading.
func TestPingAnswersAtOnceAmongManySlowCalls(t *testing.T) {
	release := make(chan bool)
	l := serveFake(t, func(_ context.Context, _ tools.Request, send func(tools.Result)) {
		<-release
		send(tools.Result{Text: "x"})
	})
	const calls = 250
	for range calls {
		l.call(`"call"`, "")
	}
	for range 10 {
		l.send(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
		if m := l.next(); m.ID != "ping" {
			t.Errorf("%+v", m)
		}
	}
	close(release)
	for range calls {
		if m := l.next(); m.ID != "call" {
			t.Errorf("%+v", m)
		}
	}
}

func TestACallHasItsHostAndItsProgressAndAnswerComeInOrder(t *testing.T) {
	l := serveFake(t, func(_ context.Context, q tools.Request, send func(tools.Result)) {
		if q.Progress != nil {
			q.Progress(tools.Progress{Value: 1, Message: "one"})
			q.Progress(tools.Progress{Value: 2, Total: 1 << 40, Message: "two"})
		}
		send(tools.Result{Text: q.Host, Pictures: []render.Picture{{Data: []byte("PNG"), MIMEType: "image/png"}}, Structured: json.RawMessage(`{"a":1}`), IsError: q.Progress == nil})
	})
	l.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"%s","version":"1"}}}`, strings.Repeat("é", 2*maxClient))
	l.next()
	l.call("2", "")
	const picture = `{"type":"image","data":"UE5H","mimeType":"image/png"}]`
	if m := l.next(); string(m.Result) != `{"content":[{"type":"text","text":"`+strings.Repeat("é", maxClient-1)+`…"},`+picture+`,"isError":true,"structuredContent":{"a":1}}` {
		t.Errorf("%s", m.Result)
	}
	l.call("3", `,"_meta":{"progressToken":"token-7","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"modern"}}`)
	for _, want := range []string{`{"message":"one","progress":1,"progressToken":"token-7"}`, `{"message":"two","progress":2,"progressToken":"token-7","total":1099511627776}`} {
		if m := l.next(); m.Method != "notifications/progress" || string(m.Params) != want {
			t.Errorf("%s %s", m.Method, m.Params)
		}
	}
	if m := l.next(); !strings.Contains(string(m.Result), `"content":[{"type":"text","text":"modern"},`+picture) || strings.Contains(string(m.Result), "isError") {
		t.Errorf("%s", m.Result)
	}
}
