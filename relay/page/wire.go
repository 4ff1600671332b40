package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/coder/websocket"
	"github.com/mark3labs/mcp-go/mcp"
)

const (
	// maxMessage bounds one message of a tab, in bytes. Beyond it the tab is closed with 1009.
	maxMessage = 64 << 20
	// maxPending bounds the calls that a tab has not answered. Beyond it a call fails at once.
	maxPending = 64
	// maxQueued bounds the messages that wait for being sent. Beyond it senders wait.
	maxQueued = 16
)

var errPending = fmt.Errorf("%d calls are waiting for an answer from Colab's page: wait for those first, or close the tab", maxPending)

// wire exchanges JSON-RPC messages with one tab.
type wire struct {
	conn   *websocket.Conn
	timing timing
	limit  int64 // bytes of one message of the tab
	out    chan []byte
	failed chan ending   // why the connection must end, from outside its goroutines
	done   chan struct{} // closed when the connection is lost

	mu      sync.Mutex
	pending map[int64]*call
	next    int64
}

// call is a request that waits for its answer.
type call struct {
	read func(m *message) error // reads the answer
	done chan struct{}          // closed when it was read
	err  error                  // of read
}

func newWire(conn *websocket.Conn, t timing, limit int64) *wire {
	return &wire{
		conn: conn, timing: t, limit: limit, out: make(chan []byte, maxQueued), failed: make(chan ending, 1),
		done: make(chan struct{}), pending: map[int64]*call{},
	}
}

// request sends a request and has its answer read. The end of ctx leaves the connection as it
// is: the tab may still do what was asked.
func (w *wire) request(ctx context.Context, method string, params any, read func(m *message) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &call{read: read, done: make(chan struct{})}
	id, err := w.expect(c)
	if err != nil {
		return err
	}
	if err = w.send(ctx, outgoing{ID: id, Method: method, Params: params}); err == nil {
		select {
		case <-c.done:
		case <-ctx.Done():
			err = ctx.Err()
		case <-w.done:
			err = ErrTabLost
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, id)
	select {
	case <-c.done: // also if it came before the connection was lost
		return c.err
	default:
		return err
	}
}

// expect returns the id of a new request, whose answer c reads.
func (w *wire) expect(c *call) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) >= maxPending {
		return 0, errPending
	}
	w.next++
	w.pending[w.next] = c
	return w.next, nil
}

// deliver has an answer read by the call that expects it. Others are ignored. The tab's next
// message is read afterwards, so that the answers of many calls never stand in memory together.
func (w *wire) deliver(id int64, m *message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.pending[id]; c != nil {
		delete(w.pending, id)
		c.err = c.read(m)
		close(c.done)
	}
}

// outgoing is a message to the tab. It has no null fields, which the page refuses.
type outgoing struct {
	Version string          `json:"jsonrpc"`
	ID      any             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

func (w *wire) send(ctx context.Context, m outgoing) error {
	m.Version = mcp.JSONRPC_VERSION
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing a message to Colab's tab: %w", err)
	}
	select {
	case <-w.done:
		return ErrTabLost
	default:
	}
	select {
	case w.out <- data:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.done:
		return ErrTabLost
	}
}

// receive handles one message of the tab. It returns why the connection must end, if it must.
func (w *wire) receive(data []byte) *ending {
	m, err := decodeMessage(data)
	switch {
	case errors.Is(err, errComplex):
		return &ending{websocket.StatusMessageTooBig, "too many values"}
	case err != nil:
		return &ending{websocket.StatusInvalidFramePayloadData, "not a JSON-RPC message"}
	case m.answerable():
		w.reply(&m)
	case m.Method == "":
		if id, err := strconv.ParseInt(string(m.ID), 10, 64); err == nil {
			w.deliver(id, &m)
		}
	}
	return nil
}

// reply answers a request of the tab. While the tab does not read, no more is read from it.
func (w *wire) reply(m *message) {
	out := outgoing{ID: m.ID, Error: &rpcError{Code: mcp.METHOD_NOT_FOUND, Message: "the relay answers no such request"}}
	if m.Method == string(mcp.MethodPing) {
		out.Error, out.Result = nil, json.RawMessage("{}")
	}
	_ = w.send(context.Background(), out) // fails only when the connection has ended
}
