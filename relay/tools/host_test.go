package tools

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/within"
)

// host is an MCP host on the other end of real pipes. It checks what every host
// relies on: each line on stdout is one JSON-RPC message, and each tool result
// has a text and its fields.
type host struct {
	t       *testing.T
	relay   *Relay
	writing sync.Mutex // apart from mu: the relay may write before it reads on
	stdin   io.WriteCloser

	mu      sync.Mutex
	next    int
	waiting map[string]chan message
	notes   []message
	order   []string // "note" and "answer <id>", in order of arrival
	list    json.RawMessage
}

type message struct {
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

// result is a tools/call answer.
type result struct {
	IsError    bool            `json:"isError"`
	Structured json.RawMessage `json:"structuredContent"`
	Content    []content       `json:"content"`
	bytes      int
}

type content struct{ Type, Text, Data, MimeType string }

func (r result) outcome(t *testing.T) Outcome { return decode[Outcome](t, r.Structured) }
func (r result) run(t *testing.T) Run         { return decode[Run](t, r.Structured) }

func decode[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

func startHost(t *testing.T, cfg Config) *host {
	t.Helper()
	if cfg.Hold == 0 {
		cfg.Hold = time.Minute // less than a host waits for an answer
	}
	cfg.Structured = true
	return serveHost(t, New(cfg))
}

func serveHost(t *testing.T, r *Relay) *host {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	h := &host{t: t, relay: r, stdin: inW, waiting: map[string]chan message{}}
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := r.Serve(context.Background(), inR, outW); err != nil {
			t.Errorf("serve: %v", err)
		}
		outW.Close()
	})
	ended.Go(func() { h.listen(outR) })
	t.Cleanup(func() { inW.Close(); ended.Wait() })
	h.request("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"}})
	h.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	h.list = h.request("tools/list", map[string]any{})
	return h
}

func (h *host) listen(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line, &m) != nil || m.JSONRPC != "2.0" {
			h.t.Errorf("not JSON-RPC on stdout: %.200q", line)
			continue
		}
		h.mu.Lock()
		if m.Method != "" {
			h.notes = append(h.notes, m)
			h.order = append(h.order, "note")
			h.mu.Unlock()
			continue
		}
		id := fmt.Sprint(m.ID)
		h.order = append(h.order, "answer "+id)
		ch := h.waiting[id]
		h.mu.Unlock()
		if ch == nil {
			h.t.Errorf("answer without a request: %.200q", line)
			continue
		}
		ch <- m
	}
}

func (h *host) send(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		h.t.Error(err)
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	if _, err := h.stdin.Write(append(b, '\n')); err != nil {
		h.t.Errorf("writing to the relay: %v", err)
	}
}

// begin sends a request and gives its id and where the answer comes.
func (h *host) begin(method string, params any) (string, <-chan message) {
	h.mu.Lock()
	h.next++
	id := fmt.Sprintf("r%d", h.next)
	ch := make(chan message, 1)
	h.waiting[id] = ch
	h.mu.Unlock()
	h.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return id, ch
}

func (h *host) cancel(id string) {
	h.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": id}})
}

func (h *host) await(ch <-chan message) message {
	h.t.Helper()
	return within.Receive(h.t, "an answer", ch)
}

func (h *host) request(method string, params any) json.RawMessage {
	h.t.Helper()
	_, ch := h.begin(method, params)
	m := h.await(ch)
	if m.Error != nil {
		h.t.Fatalf("%s: %+v", method, m.Error)
	}
	return m.Result
}

func params(name string, args any) map[string]any {
	return map[string]any{"name": name, "arguments": args}
}

// call calls a tool and checks its result.
func (h *host) call(name string, args any) result {
	h.t.Helper()
	_, ch := h.begin("tools/call", params(name, args))
	return h.result(name, h.await(ch))
}

func (h *host) result(name string, m message) result {
	h.t.Helper()
	if m.Error != nil {
		h.t.Fatalf("%s: JSON-RPC error %+v", name, m.Error)
	}
	var r result
	if err := json.Unmarshal(m.Result, &r); err != nil {
		h.t.Fatal(err)
	}
	r.bytes = len(m.Result)
	o := r.outcome(h.t)
	picture := slices.ContainsFunc(r.Content, func(c content) bool { return c.Type == "image" })
	if o.Success != (o.Error == nil) || r.IsError != (o.Error != nil && !picture) {
		h.t.Errorf("%s: success %v, isError %v, error %v", name, o.Success, r.IsError, o.Error)
	}
	if e := o.Error; e != nil && (e.Code == "" || e.Message == "" || e.Hint == "") {
		h.t.Errorf("%s: error without code, message or hint: %+v", name, e)
	}
	if len(r.Content) == 0 || r.Content[0].Type != "text" || r.Content[0].Text == "" {
		h.t.Errorf("%s: no text", name)
	}
	return r
}

// serveFake is a host, a relay and a fake executor behind it.
func serveFake(t *testing.T) (*host, *fakeExecutor) {
	t.Helper()
	f := newFake(t)
	rt := f.runtime(t)
	h := startHost(t, Config{
		Resolve: func(string) (runtimes.Runtime, error) { return rt, nil },
		SaveDir: t.TempDir(), CheckpointDir: t.TempDir(), Version: "test", Toolsets: toolsets.All, Notebooks: sampleRoots(t),
	})
	return h, f
}

// onOwnClock is serveFake on a clock of the test's, for calls that take all of the hold: it
// stands still while the relay works, so that the machine's speed changes nothing.
func onOwnClock(t *testing.T, hold time.Duration, test func(t *testing.T, h *host, f *fakeExecutor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := unserved()
		rt := directly(t, f.secret, f)
		h := startHost(t, Config{
			Resolve: func(string) (runtimes.Runtime, error) { return rt, nil },
			SaveDir: t.TempDir(), CheckpointDir: t.TempDir(), Hold: hold, Version: "test", Toolsets: toolsets.All, Notebooks: sampleRoots(t),
		})
		test(t, h, f)
	})
}

// sameFields compares the named fields of two structs.
func sameFields[T any](t *testing.T, want, got T, names ...string) {
	t.Helper()
	others := cmp.FilterPath(func(p cmp.Path) bool {
		field, ok := p.Index(1).(cmp.StructField)
		return ok && !slices.Contains(names, field.Name())
	}, cmp.Ignore())
	if diff := cmp.Diff(want, got, others); diff != "" {
		t.Error(diff)
	}
}
