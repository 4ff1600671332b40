package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"
	"github.com/mark3labs/mcp-go/mcp"
)

const (
	// maxMessage bounds one message of a tab, in bytes. Beyond it the tab is closed with 1009.
	maxMessage = 64 << 20
	// maxPending bounds the calls that a tab has not answered. Beyond it a call fails at once.
	maxPending = 64
	// maxHeld bounds the bytes of the answers that are being read by their callers. Beyond it
	// an answer is dropped and its call fails.
	maxHeld = 2 * maxMessage
	// maxQueued bounds the messages that wait for being sent. Beyond it senders wait.
	maxQueued = 16
)

var (
	errPending = fmt.Errorf("%d calls wait for an answer of Colab's page: wait for those first, or close the tab", maxPending)
	errHeld    = fmt.Errorf("the answers of Colab's page to several calls have more than %d MiB together: call again, one at a time", maxHeld>>20)
)

// wire exchanges JSON-RPC messages with one tab.
type wire struct {
	conn   *websocket.Conn
	raw    net.Conn // below conn
	timing timing
	limit  int64 // bytes of one message of the tab
	out    chan []byte
	failed chan ending   // why the connection must end, from outside its goroutines
	done   chan struct{} // closed when the connection is lost
	heard  atomic.Int64  // counts what was read, as a sign of life
	held   atomic.Int64  // bytes of answers
	stale  atomic.Bool   // the page said that its tools changed

	mu      sync.Mutex
	pending map[int64]chan answer
	next    int64
}

// answer is what a tab answered. Its receiver calls release when it has read it.
type answer struct {
	result json.RawMessage
	err    *rpcError
	size   int64
	lost   error // why there is no answer
}

func newWire(conn *websocket.Conn, raw net.Conn, t timing, limit int64) *wire {
	return &wire{
		conn: conn, raw: raw, timing: t, limit: limit, out: make(chan []byte, maxQueued), failed: make(chan ending, 1),
		done: make(chan struct{}), pending: map[int64]chan answer{},
	}
}

// request sends a request and returns its answer. The end of ctx leaves the connection as it
// is: the tab may still do what was asked.
func (w *wire) request(ctx context.Context, method string, params any) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	id, reply, err := w.expect()
	if err != nil {
		return answer{}, err
	}
	defer w.forget(id, reply)
	if err := w.send(ctx, outgoing{ID: id, Method: method, Params: params}); err != nil {
		return answer{}, err
	}
	select {
	case a := <-reply:
		return a, a.lost
	case <-ctx.Done():
		return answer{}, ctx.Err()
	case <-w.done:
		return w.last(reply)
	}
}

// ask sends a request whose result is small, and decodes it.
func (w *wire) ask(ctx context.Context, method mcp.MCPMethod, params map[string]any, result any) error {
	a, err := w.request(ctx, string(method), params)
	if err != nil {
		return err
	}
	defer w.release(a)
	if a.err != nil {
		return newToolError(string(method), a.err.Code, a.err.Message)
	}
	return json.Unmarshal(a.result, result)
}

// last returns an answer that came before the connection was lost.
func (w *wire) last(reply chan answer) (answer, error) {
	select {
	case a := <-reply:
		return a, a.lost
	default:
		return answer{}, ErrTabLost
	}
}

// expect returns the id of a new request and where its answer will come.
func (w *wire) expect() (int64, chan answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) >= maxPending {
		return 0, nil, errPending
	}
	w.next++
	reply := make(chan answer, 1)
	w.pending[w.next] = reply
	return w.next, reply, nil
}

// forget ends the expectation of an answer. One that nobody took is released.
func (w *wire) forget(id int64, reply chan answer) {
	w.mu.Lock()
	delete(w.pending, id)
	w.mu.Unlock()
	select {
	case a := <-reply:
		w.release(a)
	default:
	}
}

func (w *wire) release(a answer) { w.held.Add(-a.size) }

// deliver gives an answer to the call that expects it. Others are ignored.
func (w *wire) deliver(id int64, m *message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	reply, ok := w.pending[id]
	if !ok {
		return
	}
	delete(w.pending, id)
	size := int64(len(m.Result))
	if m.Error != nil {
		size += int64(len(m.Error.Message))
	}
	if w.held.Add(size) > maxHeld {
		w.held.Add(-size)
		reply <- answer{lost: errHeld}
		return
	}
	reply <- answer{result: m.Result, err: m.Error, size: size}
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
	case m.Method != "":
		if m.Method == mcp.MethodNotificationToolsListChanged {
			w.stale.Store(true)
		}
	default:
		if id, ok := m.answers(); ok {
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
