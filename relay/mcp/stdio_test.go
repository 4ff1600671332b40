package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"colabrelay/relay/render"
	"colabrelay/relay/tools"
)

// Hosts must not notice that the relay does without mcp-go's server.
func TestRequestsAreAnsweredAsTheSDKAnswers(t *testing.T) {
	s := withoutRuntime()
	sdk := server.NewMCPServer(s.about.Name, s.about.Version, server.WithInstructions(s.guide), server.WithToolCapabilities(false),
		server.WithCacheHints(listsKeep.Milliseconds(), mcp.CacheScopePrivate))
	for _, tool := range s.list() {
		sdk.AddTool(tool, func(ctx context.Context, req mcp.CallToolRequest) (result *mcp.CallToolResult, _ error) {
			q := tools.Request{Tool: req.Params.Name, Arguments: req.Params.RawArguments, Cancelled: func() bool { return false }}
			s.tools.Call(ctx, q, func(r tools.Result) { result = resultOf(r) })
			return result, nil
		})
	}
	const old = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18"}`
	unknown := strings.Replace(modernMeta, "2026", "2030", 1)
	incapable := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	wordless := func(answer []byte) map[string]any {
		m := decode[map[string]any](t, answer)
		if refusal, ok := m["error"].(map[string]any); ok {
			delete(refusal, "message")
		}
		return m
	}
	l := serveLines(t, s, maxHeld)
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":"<a> \u00e9\"","method":"tools/call","params":{"name":"list_executions"}}`,
		` { "id" : -7.5 , "params" : { "arguments" : null , "name" : "list_executions" , "_meta" : { "progressToken" : null } } , "method" : "tools/call" , "jsonrpc" : "2.0" } `,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions","arguments":[1]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code_quick","arguments":{"code":"` + strings.Repeat("x", 1<<20) + `"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions",` + old + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions",` + modernMeta + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_executions",` + incapable + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no such tool"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize"}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + modernMeta + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modernMeta + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + unknown + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":""}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`,
		`{"jsonrpc":"1.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1}`,
		`null`, `[]`,
	} {
		want, err := json.Marshal(sdk.HandleMessage(t.Context(), json.RawMessage(line)))
		if err != nil {
			t.Fatal(err)
		}
		l.send("%s", line)
		got, err := l.out.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wordless(want), wordless(got)); diff != "" {
			t.Errorf("%.200s: (-SDK +relay)\n%s", line, diff)
		}
	}
}

// A host that reads nothing must not keep the relay alive after it has closed stdin.
func TestAHostThatReadsNoAnswersDoesNotKeepTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, stdout := io.Pipe() // a write blocks until it is read
		defer out.Close()        // lets the goroutine of the write that hangs end
		if err := withoutRuntime().Serve(t.Context(), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"), stdout); err != nil {
			t.Error(err)
		}
	})
}

// A script writes all that it asks, and a host may go away: calls get a moment for their answers, and
// nothing is written after Serve has returned.
func TestTheEndOfStdinEndsCallsThatAreNotAnsweredSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(fake(func(ctx context.Context, q tools.Request, send func(tools.Result)) {
			select {
			case <-time.After(time.Duration(len(q.Arguments)) * lastAnswers / 5):
			case <-ctx.Done():
			}
			send(tools.Result{Text: fmt.Sprintf("%s ended: %t, cancelled: %t", q.Arguments, ctx.Err() != nil, q.Cancelled())})
		}), "", "")
		calls, want := "", ""
		for _, c := range []string{"1 ended: false", "22 ended: false", "333333 ended: true"} {
			calls += `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":` + strings.Fields(c)[0] + "}}\n"
			want += `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + c + `, cancelled: false"}]}}` + "\n"
		}
		var stdout strings.Builder
		if err := s.Serve(t.Context(), strings.NewReader(calls), &stdout); err != nil || stdout.String() != want {
			t.Errorf("%v, %s", err, stdout.String())
		}
	})
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
