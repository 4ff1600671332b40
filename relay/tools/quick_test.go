package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// quickHost calls run_code_quick of a relay whose executor answers at once. Nothing but the
// relay's own work is between a line on its stdin and the answer.
type quickHost struct {
	client *client.Client
	line   *direct
	stdin  io.Writer
	writes chan string // one entry for each write to stdout
	calls  int
}

func startQuickHost(t testing.TB) *quickHost {
	f := unserved()
	now := time.Now()
	f.answer("POST", contract.PathExecutions, contract.Execution{
		ExecutionID: "execution-1", Status: contract.StatusSucceeded, KernelID: "kernel-1", CreatedAt: now, StartedAt: &now, FinishedAt: &now,
		Events: []contract.Event{{
			Time: now, Type: contract.EventExecuteResult, ExecutionCount: 7,
			Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"2"`)}, Metadata: json.RawMessage(`{}`),
		}},
		NextOffset: 1, End: true,
	})
	h := &quickHost{line: &direct{handler: f}, writes: make(chan string, 1)}
	var err error
	if h.client, err = client.New(client.Config{BaseURL: "http://executor.test", Secret: f.secret, Transport: h.line}); err != nil {
		t.Fatal(err)
	}
	r := New(Config{
		Resolve: func(string) (runtimes.Runtime, error) { return runtimes.Runtime{Name: "test", Client: h.client}, nil },
		SaveDir: t.TempDir(), Hold: time.Minute, Version: "test",
	})
	stdin, in := io.Pipe()
	h.stdin = in
	served := make(chan error)
	go func() { served <- r.Serve(context.Background(), stdin, h) }()
	t.Cleanup(func() {
		in.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	h.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	h.call() // the first call asks which executor it is
	return h
}

// Write is the relay's stdout.
func (h *quickHost) Write(p []byte) (int, error) {
	h.writes <- string(p)
	return len(p), nil
}

func (h *quickHost) send(line string) (answer string) {
	io.WriteString(h.stdin, line+"\n")
	return <-h.writes
}

func (h *quickHost) call() (answer string) {
	h.calls++
	return h.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_code_quick","arguments":{"code":"1+1"},"_meta":{"progressToken":%d}}}`, h.calls, h.calls))
}

func (h *quickHost) submit(t testing.TB) {
	if _, err := h.client.Submit(t.Context(), contract.Submit{Code: "1+1", TimeoutSeconds: 120, WaitSeconds: 50}); err != nil {
		t.Fatal(err)
	}
}

func TestAQuickCallIsOneRequestAndOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startQuickHost(t)
		before := h.line.asked.Load()
		const calls = 50
		for range calls {
			answer := h.call()
			if !strings.HasPrefix(answer, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{`, h.calls)) || !strings.HasSuffix(answer, "}\n") || strings.Count(answer, "\n") != 1 {
				t.Fatalf("a write that is not one answer: %q", answer)
			}
		}
		if n := h.line.asked.Load() - before; n != calls {
			t.Errorf("%d requests in %d calls", n, calls)
		}
		select {
		case more := <-h.writes:
			t.Errorf("the relay also wrote %q", more)
		default:
		}
	})
}

// mostAllocations is how often a quick call may allocate in addition to its request: up to 163
// times when this was written, with the race detector.
const mostAllocations = 170

func TestAQuickCallAllocatesLittleMoreThanItsRequest(t *testing.T) {
	h := startQuickHost(t)
	submit := testing.AllocsPerRun(200, func() { h.submit(t) })
	call := testing.AllocsPerRun(200, func() { h.call() })
	if call-submit > mostAllocations {
		t.Errorf("%.0f allocations in a call, %.0f of them in its request: want at most %d others", call, submit, mostAllocations)
	}
}

func BenchmarkQuickCall(b *testing.B) {
	h := startQuickHost(b)
	b.ReportAllocs()
	for b.Loop() {
		h.call()
	}
}

func BenchmarkQuickCallsRequest(b *testing.B) {
	h := startQuickHost(b)
	b.ReportAllocs()
	for b.Loop() {
		h.submit(b)
	}
}
