package mcp

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/tools"
)

// request is a message of the host's that gets an answer.
type request struct {
	message
	server  *Server
	id      json.RawMessage          // nil if the message has no valid one
	key     string                   // idKey of id, set by inFlight
	refusal *mcp.JSONRPCErrorDetails // why the request is not valid; nil if it is
	cost    int64                    // what it holds of maxHeld
	out     *lineWriter
	arrived time.Time
	done    chan struct{}     // closed when it is answered
	after   []<-chan struct{} // calls that were cancelled before and have not ended

	cancelled atomic.Bool
	stop      context.CancelFunc // ends the work on it
}

// send writes a message that belongs to the request. Nothing may follow for a cancelled request: the
// TypeScript client reports an answer as one to an unknown request.
func (q *request) send(message any) {
	line := append(encode(message), '\n')
	q.out.mu.Lock()
	defer q.out.mu.Unlock()
	if !q.cancelled.Load() {
		_, _ = q.out.w.Write(line) // if the host is gone, the end of stdin ends the relay
	}
}

// notify writes a notification that belongs to the request.
func (q *request) notify(method string, params any) {
	q.send(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "method": method, "params": params})
}

// progress returns what sends the progress messages of a call; nil if the host wants none.
func (q *request) progress() func(tools.Progress) {
	token := validID(q.Params.Meta.Token)
	if token == nil {
		return nil
	}
	return func(p tools.Progress) {
		params := map[string]any{"progressToken": token, "progress": p.Value, "message": p.Message}
		if p.Total > 0 {
			params["total"] = p.Total
		}
		q.notify(string(mcp.MethodNotificationProgress), params)
	}
}

func (q *request) isCall() bool { return q.refusal == nil && q.Method == string(mcp.MethodToolsCall) }

// inFlight knows the requests that were read and not answered; stdio bounds their number. A
// cancellation of any other request has no effect: it came too late, or the host is broken.
type inFlight struct {
	mu       sync.Mutex
	requests map[string]*request // by idKey; of two with the same id the newer one
}

func (f *inFlight) add(q *request) {
	if q.id == nil {
		return
	}
	q.key = idKey(q.id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests == nil {
		f.requests = map[string]*request{}
	}
	for _, other := range f.requests {
		if other.cancelled.Load() && other.isCall() && len(q.after) < maxLeaving {
			q.after = append(q.after, other.done)
		}
	}
	f.requests[q.key] = q
}

// Bounds of the cancelled calls whose end a call waits for.
const (
	maxLeaving  = 16
	leavingTime = time.Second
)

// afterCancelled waits until what cancelled calls left is known.
func (q *request) afterCancelled(ctx context.Context) {
	if len(q.after) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, leavingTime)
	defer stop()
	for _, done := range q.after {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

func (f *inFlight) end(q *request) {
	q.stop()
	close(q.done)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests[q.key] == q {
		delete(f.requests, q.key)
	}
}

// cancel drops what follows for the request of that id, and ends the work on it.
func (f *inFlight) cancel(id json.RawMessage) {
	if id = validID(id); id == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.requests[idKey(id)]; q != nil {
		q.cancelled.Store(true)
		q.stop()
	}
}
