package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// asked holds the relay's requests to the host that have no answer yet. Each belongs to a
// call in progress, so there are at most maxCalls.
type asked struct {
	mu      sync.Mutex
	last    int
	waiting map[string]chan<- envelope // by idKey
}

// ask sends the host a request and returns the result. A refusal of the host's, and the end
// of ctx, are errors; at the end of ctx it tells the host that the answer is not needed.
func (s *stdio) ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	id, answers := s.asked.open()
	defer s.asked.close(id)
	if err := s.tell(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "id": id, "method": method, "params": params}); err != nil {
		return nil, fmt.Errorf("sending %s to the host: %w", method, err)
	}
	select {
	case m := <-answers:
		if m.Result == nil {
			return nil, fmt.Errorf("the host refused %s: %.300s", method, m.Error)
		}
		return m.Result, nil
	case <-ctx.Done():
		_ = s.tell(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "method": mcp.MethodNotificationCancelled, "params": map[string]any{"requestId": id}})
		return nil, ctx.Err()
	}
}

func (s *stdio) tell(message any) error {
	_, err := s.out.writeUnless(func() bool { return false }, append(encode(message), '\n'))
	return err
}

func (a *asked) open() (id string, answers <-chan envelope) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[string]chan<- envelope{}
	}
	a.last++
	id = "relay-" + strconv.Itoa(a.last)
	ch := make(chan envelope, 1)
	a.waiting[idKey(encode(id))] = ch
	return id, ch
}

func (a *asked) close(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, idKey(encode(id)))
}

// answered passes on an answer of the host's. Nobody waits for a late one, a second one and
// one that was made up.
func (a *asked) answered(m envelope) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := idKey(m.ID)
	if answers := a.waiting[id]; answers != nil {
		answers <- m
		delete(a.waiting, id)
	}
}
