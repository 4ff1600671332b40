package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

// bridge lets the conformance suite, which speaks HTTP only, talk to a relay on stdio. Each
// POST is one message. Ids are replaced by numbers, because all requests share one relay.
type bridge struct {
	url   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	http  *http.Server

	mu      sync.Mutex
	last    int
	waiting map[int]*exchange
}

// exchange is a request and where its messages go.
type exchange struct {
	id       any // the suite's
	token    any // its progress token
	messages chan map[string]any
}

const subscriptionID = "io.modelcontextprotocol/subscriptionId"

// startBridge starts a relay, and a server in front of it on a free port of loopback.
func startBridge(relay string, env []string) (*bridge, error) {
	b := &bridge{cmd: exec.Command(relay, "serve"), waiting: map[int]*exchange{}}
	b.cmd.Env = env
	var err error
	if b.stdin, err = b.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	b.url = "http://" + listener.Addr().String() + "/mcp"
	b.http = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	go b.read(stdout)
	go func() { _ = b.http.Serve(listener) }()
	return b, nil
}

func (b *bridge) close() error {
	_ = b.http.Close()
	_ = b.stdin.Close()
	return b.cmd.Wait()
}

// ServeHTTP passes a message on and answers with what the relay sends for it: one JSON
// object, or an event stream if notifications come first.
func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return
	}
	var m map[string]any
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`, http.StatusBadRequest)
		return
	}
	if m["id"] == nil || m["method"] == nil {
		b.send(m)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	id, e := b.open(m)
	defer b.forget(id)
	b.send(m)
	b.answer(r.Context(), w, e)
}

func (b *bridge) answer(ctx context.Context, w http.ResponseWriter, e *exchange) {
	stream := false
	for {
		select {
		case m := <-e.messages:
			data, _ := json.Marshal(m) // it was read from JSON
			_, notification := m["method"]
			switch {
			case notification && !stream:
				stream = true
				w.Header().Set("Content-Type", "text/event-stream")
				fallthrough
			case stream:
				fmt.Fprintf(w, "event: message\ndata: %s\n\n", data)
				w.(http.Flusher).Flush()
			default:
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status(m))
				_, _ = w.Write(data)
			}
			if !notification {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// status is what the HTTP transport prescribes for the errors of revision 2026-07-28.
func status(m map[string]any) int {
	e, _ := m["error"].(map[string]any)
	switch code, _ := e["code"].(float64); code {
	case -32601:
		return http.StatusNotFound
	case -32600, -32602, -32020, -32021, -32022:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

func (b *bridge) open(m map[string]any) (int, *exchange) {
	e := &exchange{id: m["id"], messages: make(chan map[string]any, 100)}
	params, _ := m["params"].(map[string]any)
	meta, _ := params["_meta"].(map[string]any)
	e.token = meta["progressToken"]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	b.waiting[b.last] = e
	m["id"] = b.last
	if e.token != nil {
		meta["progressToken"] = b.last
	}
	return b.last, e
}

func (b *bridge) forget(id int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, id)
}

func (b *bridge) send(m map[string]any) {
	data, _ := json.Marshal(m)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.stdin.Write(append(data, '\n')); err != nil {
		fmt.Fprintln(os.Stderr, "interop: writing to the relay:", err)
	}
}

// read passes the relay's messages to the exchanges that they belong to.
func (b *bridge) read(stdout io.Reader) {
	for lines := bufio.NewReader(stdout); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintf(os.Stderr, "interop: not JSON on the relay's stdout: %q\n", line)
			continue
		}
		b.pass(m)
	}
}

func (b *bridge) pass(m map[string]any) {
	id, isAnswer := m["id"].(float64)
	params, _ := m["params"].(map[string]any)
	result, _ := m["result"].(map[string]any)
	var metas []map[string]any
	for _, holder := range []map[string]any{params, result} {
		if meta, ok := holder["_meta"].(map[string]any); ok {
			metas = append(metas, meta)
			if s, ok := meta[subscriptionID].(float64); ok {
				id = s
			}
		}
	}
	token, isProgress := params["progressToken"].(float64)
	if isProgress {
		id = token
	}
	b.mu.Lock()
	e := b.waiting[int(id)]
	b.mu.Unlock()
	if e == nil {
		return
	}
	if isAnswer {
		m["id"] = e.id
	}
	if isProgress {
		params["progressToken"] = e.token
	}
	for _, meta := range metas {
		if meta[subscriptionID] != nil {
			meta[subscriptionID] = e.id
		}
	}
	e.messages <- m
}
