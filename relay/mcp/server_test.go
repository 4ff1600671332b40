package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"go.uber.org/goleak"

	"colabrelay/relay/op"
	"colabrelay/relay/render"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/within"
)

// Hosts must not notice that the relay does without mcp-go's server.
func TestRequestsAreAnsweredAsTheSDKAnswers(t *testing.T) {
	s := withoutRuntime()
	sdk := server.NewMCPServer(s.about.Name, s.about.Version, server.WithInstructions(s.guide), server.WithToolCapabilities(false),
		server.WithCacheHints(listsKeep.Milliseconds(), mcp.CacheScopePrivate))
	for _, tool := range s.list() {
		sdk.AddTool(tool, func(ctx context.Context, req mcp.CallToolRequest) (result *mcp.CallToolResult, _ error) {
			q := op.Request{Tool: req.Params.Name, Arguments: req.Params.RawArguments, Cancelled: func() bool { return false }}
			s.tools.Call(ctx, q, func(r op.Result) { result = resultOf(r) })
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
		s := New(fake(func(ctx context.Context, q op.Request, send func(op.Result)) {
			select {
			case <-time.After(time.Duration(len(q.Arguments)) * lastAnswers / 5):
			case <-ctx.Done():
			}
			send(op.Result{Text: fmt.Sprintf("%s ended: %t, cancelled: %t", q.Arguments, ctx.Err() != nil, q.Cancelled())})
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
	l := serveFake(t, func(_ context.Context, _ op.Request, send func(op.Result)) {
		<-release
		send(op.Result{Text: "x"})
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
	l := serveFake(t, func(_ context.Context, q op.Request, send func(op.Result)) {
		if q.Progress != nil {
			q.Progress(op.Progress{Value: 1, Message: "one"})
			q.Progress(op.Progress{Value: 2, Total: 1 << 40, Message: "two"})
		}
		send(op.Result{Text: q.Host, Pictures: []render.Picture{{Data: []byte("PNG"), MIMEType: "image/png"}}, Structured: json.RawMessage(`{"a":1}`), IsError: q.Progress == nil})
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a host that sees each line as it is, and reads only when it is told to.
type lines struct {
	t     *testing.T
	stdio *stdio
	in    *io.PipeWriter
	raw   io.Reader
	out   *bufio.Reader
}

// serveLines serves a host. The relay holds at most the given bytes of requests.
func serveLines(t *testing.T, s *Server, held int64) *lines {
	t.Helper()
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	l := &lines{t: t, stdio: newStdio(s, stdin, stdout, held), in: in, raw: out, out: bufio.NewReader(out)}
	served := make(chan error)
	go func() { served <- l.stdio.serve(context.Background()) }()
	t.Cleanup(func() {
		in.Close()
		go io.Copy(io.Discard, l.out)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		stdout.Close()
	})
	return l
}

// withoutRuntime serves tools whose calls all fail at once.
func withoutRuntime() *Server {
	none := func(string) (runtimes.Runtime, error) { return runtimes.Runtime{}, errors.New("no <runtime> & none") }
	return New(op.New(op.Config{Resolve: none, Hold: time.Second}), "", "1.2")
}

// fake are tools of one name.
type fake func(ctx context.Context, q op.Request, send func(op.Result))

func (f fake) Definitions() []op.Definition {
	return []op.Definition{{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}}
}

func (f fake) Call(ctx context.Context, q op.Request, send func(op.Result)) { f(ctx, q, send) }

// serveFake serves a host the tool t.
func serveFake(t *testing.T, f fake) *lines {
	t.Helper()
	return serveLines(t, New(f, "", "1.2"), maxHeld)
}

// call calls t; fields follow in the parameters.
func (l *lines) call(id, fields string) {
	l.t.Helper()
	l.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"t"%s}}`, id, fields)
}

type reply struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      any             `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func decode[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

func (l *lines) send(format string, args ...any) {
	l.t.Helper()
	if _, err := fmt.Fprintf(l.in, format+"\n", args...); err != nil {
		l.t.Error(err)
	}
}

// next reads the next line.
func (l *lines) next() reply {
	l.t.Helper()
	line, err := l.out.ReadBytes('\n')
	if err != nil {
		l.t.Fatal(err)
	}
	var m reply
	if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" {
		l.t.Fatalf("not JSON-RPC: %.300q", line)
	}
	return m
}

// await returns when the relay writes an answer, which it can finish only when the host reads.
func (l *lines) await() {
	l.t.Helper()
	first := make([]byte, 1)
	if _, err := io.ReadFull(l.raw, first); err != nil {
		l.t.Fatal(err)
	}
	l.out.Reset(io.MultiReader(bytes.NewReader(first), l.raw))
}

// quiet waits until no request is in flight, and checks that the next answer is a ping's.
func (l *lines) quiet() {
	l.t.Helper()
	within.Until(l.t, "the end of all requests", func() bool { return l.inFlight() == 0 })
	l.send(`{"jsonrpc":"2.0","id":"quiet","method":"ping"}`)
	if m := l.next(); m.ID != "quiet" {
		l.t.Errorf("a message that must not be sent: %+v", m)
	}
}

func (l *lines) inFlight() int {
	l.stdio.inFlight.mu.Lock()
	defer l.stdio.inFlight.mu.Unlock()
	return len(l.stdio.inFlight.requests)
}

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
	l := serveFake(t, func(ctx context.Context, q op.Request, send func(op.Result)) {
		order <- "begins"
		if string(q.Arguments) == "1" {
			<-ctx.Done()
			if !q.Cancelled() {
				t.Error("it was not cancelled")
			}
			order <- "ended"
		}
		send(op.Result{Text: "x"})
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
	s := newStdio(New(fake(func(ctx context.Context, _ op.Request, _ func(op.Result)) { ended <- ctx.Err() != nil }), "", ""), strings.NewReader(""), io.Discard, maxHeld)
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
