package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/runtimes"
	"colabrelay/relay/tools"
	"colabrelay/shared/within"
)

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
	return New(tools.New(tools.Config{Resolve: none, Hold: time.Second}), "", "1.2")
}

// fake are tools of one name.
type fake func(ctx context.Context, q tools.Request, send func(tools.Result))

func (f fake) Definitions() []tools.Definition {
	return []tools.Definition{{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}}
}

func (f fake) Call(ctx context.Context, q tools.Request, send func(tools.Result)) { f(ctx, q, send) }

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
