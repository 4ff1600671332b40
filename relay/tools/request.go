package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// request is a message of the host's that gets an answer.
type request struct {
	id      json.RawMessage // nil if the message has no valid one
	key     string          // idKey of id, set by inFlight
	call    *callParams     // nil if the SDK answers
	line    []byte          // for the SDK; nil if the relay answers
	refusal string          // why the request is not valid, if stdio found it
	cost    int64           // what it holds of maxHeld
	out     *lineWriter
	arrived time.Time
	done    chan struct{}     // closed when it is answered
	after   []<-chan struct{} // calls that were cancelled before and have not ended

	cancelled atomic.Bool
	stop      context.CancelFunc // nil until the answer begins; guarded by inFlight
}

// Write writes a line that belongs to the request. Nothing may follow for a cancelled
// request: the TypeScript client reports an answer as one to an unknown request.
func (q *request) Write(line []byte) (int, error) {
	return q.out.writeUnless(q.cancelled.Load, line)
}

// send writes a message.
func (q *request) send(message any) {
	_, _ = q.Write(append(encode(message), '\n')) // if the host is gone, the end of stdin ends the relay
}

// inFlight knows the requests that were read and not answered; stdio bounds their number. A
// cancellation of any other request has no effect: it came too late, or the host is broken.
type inFlight struct {
	mu       sync.Mutex
	requests map[string]*request // by idKey; of two with the same id the newer one
	leaving  []<-chan struct{}   // done of the calls that were cancelled last and have not ended
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
	f.requests[q.key], q.after = q, slices.Clone(f.leaving)
}

// begin returns the context of the work on a request, which has ended if the request is
// cancelled already. Every begin needs an end.
func (f *inFlight) begin(ctx context.Context, q *request) context.Context {
	ctx, stop := context.WithCancel(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	q.stop = stop
	if q.cancelled.Load() {
		stop()
	}
	return ctx
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
	close(q.done)
	f.mu.Lock()
	defer f.mu.Unlock()
	q.stop()
	f.leaving = slices.DeleteFunc(f.leaving, func(done <-chan struct{}) bool { return done == q.done })
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
	q := f.requests[idKey(id)]
	if q == nil {
		return
	}
	if q.cancelled.Store(true); q.call != nil {
		f.leaving = append(f.leaving, q.done)
		f.leaving = slices.Delete(f.leaving, 0, max(0, len(f.leaving)-maxLeaving))
	}
	if q.stop != nil {
		q.stop()
	}
}

// answerBySDK lets the SDK answer a request. It writes the SDK's notifications before the
// answer: a client takes an answer to subscriptions/listen that overtakes the
// acknowledgement for the end of the connection.
func (r *Relay) answerBySDK(ctx context.Context, q *request) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Log.Error("panic in the MCP SDK", "err", fmt.Sprint(p), "stack", string(debug.Stack()))
			q.send(mcp.NewJSONRPCError(mcp.NewRequestId(q.sdkID()), mcp.INTERNAL_ERROR, "the relay failed to answer", nil))
		}
	}()
	notes := make(notifications, maxNotifications)
	answer := r.mcp.HandleMessage(r.mcp.WithContext(ctx, notes), q.line)
	for range len(notes) {
		q.send(<-notes)
	}
	switch a := answer.(type) {
	case mcp.JSONRPCResponse:
		a.ID = mcp.NewRequestId(q.sdkID())
		q.send(a)
	case mcp.JSONRPCError:
		a.ID = mcp.NewRequestId(q.sdkID())
		q.send(a)
	}
}

// sdkID returns the request's id for an answer of the SDK's, which parses a large number as
// a float and would answer with another one.
func (q *request) sdkID() any {
	if q.id == nil {
		return nil
	}
	return q.id
}

// maxNotifications bounds the notifications that belong to one answer of the SDK's. The SDK
// sends one, for subscriptions/listen.
const maxNotifications = 4

// notifications is the SDK's session during one request. It keeps the notifications that
// the SDK sends.
type notifications chan mcp.JSONRPCNotification

func (n notifications) SessionID() string                                   { return "stdio" }
func (n notifications) NotificationChannel() chan<- mcp.JSONRPCNotification { return n }
func (n notifications) Initialize()                                         {}
func (n notifications) Initialized() bool                                   { return true }
