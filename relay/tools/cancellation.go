package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// maxEarly bounds the cancellations remembered for calls that have not started.
const maxEarly = 1024

// cancels knows which calls the host has cancelled, including those that have not started.
// The key of a call is the JSON text of its id.
type cancels struct {
	mu      sync.Mutex
	running map[string]context.CancelFunc
	early   []string // keys of cancelled calls that have not started, oldest first
}

func newCancels() *cancels { return &cancels{running: map[string]context.CancelFunc{}} }

// begin returns the context of a call that may take limit; the returned function must be
// called at its end.
func (c *cancels) begin(ctx context.Context, key string, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.early, key) {
		c.early = slices.DeleteFunc(c.early, func(k string) bool { return k == key })
		cancel()
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

// inspect handles the message in line if it is a cancellation.
func (c *cancels) inspect(line []byte) {
	if len(line) > 4<<10 || !bytes.Contains(line, []byte("notifications/cancelled")) {
		return
	}
	var msg struct {
		Method string `json:"method"`
		Params struct {
			RequestID json.RawMessage `json:"requestId"`
		} `json:"params"`
	}
	if json.Unmarshal(line, &msg) == nil && msg.Method == "notifications/cancelled" && !isNull(msg.Params.RequestID) {
		c.cancel(string(msg.Params.RequestID))
	}
}
