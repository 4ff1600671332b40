package tools

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// callIDHeader passes a call's JSON-RPC id from the SDK's hook to the handler, which does
// not get it any other way.
const callIDHeader = "Relay-Call-Id"

// maxEarly bounds the cancellations remembered for calls that have not started.
const maxEarly = 1024

// callKey distinguishes the number 1 from the string "1".
func callKey(id any) string { return fmt.Sprintf("%T:%v", id, id) }

// cancels knows which calls the host has cancelled, including those still in the SDK's queue:
// the SDK forgets a cancellation that arrives before the handler runs.
type cancels struct {
	mu      sync.Mutex
	running map[string]context.CancelFunc
	early   []string // keys of cancelled calls that have not started, oldest first
}

func newCancels() *cancels { return &cancels{running: map[string]context.CancelFunc{}} }

// begin returns the context of a call; the returned function must be called at its end.
func (c *cancels) begin(ctx context.Context, key string) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range c.early {
		if k == key {
			c.early[i] = ""
			cancel()
		}
	}
	c.running[key] = cancel
	return ctx, func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, key)
	}
}

func (c *cancels) cancel(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stop, ok := c.running[key]; ok {
		stop()
		return
	}
	if len(c.early) >= maxEarly {
		c.early = append(c.early[:0], c.early[1:]...)
	}
	c.early = append(c.early, key)
}

// watch returns stdin and handles the cancellations that it contains.
func (c *cancels) watch(stdin io.Reader) io.Reader {
	return &cancelReader{cancels: c, in: bufio.NewReaderSize(stdin, 64<<10)}
}

// cancelReader reads line by line. Only one goroutine may use it.
type cancelReader struct {
	cancels *cancels
	in      *bufio.Reader
	line    []byte // read and not yet passed on
	err     error
}

func (r *cancelReader) Read(p []byte) (int, error) {
	if len(r.line) == 0 && r.err == nil {
		r.line, r.err = r.in.ReadBytes('\n')
		r.inspect()
	}
	n := copy(p, r.line)
	r.line = r.line[n:]
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

func (r *cancelReader) inspect() {
	if len(r.line) > 4<<10 || !bytes.Contains(r.line, []byte("notifications/cancelled")) {
		return
	}
	var msg struct {
		Method string `json:"method"`
		Params struct {
			RequestID any `json:"requestId"`
		} `json:"params"`
	}
	if json.Unmarshal(r.line, &msg) == nil && msg.Method == "notifications/cancelled" && msg.Params.RequestID != nil {
		r.cancels.cancel(callKey(msg.Params.RequestID))
	}
}
