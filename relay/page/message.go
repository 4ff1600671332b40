package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"colabrelay/shared/bounded"
)

// Bounds of one message of a tab, besides maxMessage. The cells of a notebook are one text
// for the message, so real messages have some hundred values.
const (
	maxDepth  = 100     // of values in one another
	maxValues = 100_000 // brackets and commas, so that decoded values take little more memory than the message
	maxID     = 200     // bytes of the id of a tab's request, which its answer repeats
)

// errComplex says that a message has a form that would cost too much memory.
var errComplex = errors.New("the message has too many values, or values nested too deep")

// message is a JSON-RPC message of a tab: a request (method and id), a notification (method)
// or an answer (id).
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *rpcError       `json:"error"`
}

// rpcError is the error of an answer.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func decodeMessage(data []byte) (message, error) {
	var m message
	if !utf8.Valid(data) {
		return m, errors.New("the message is not UTF-8")
	}
	values := 0
	for range bounded.Structure(data) {
		values++
	}
	if values > maxValues || bounded.Depth(data) > maxDepth {
		return m, errComplex
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("reading a message: %w", err)
	}
	if m.Version != "2.0" || m.Method == "" && (len(m.ID) == 0 || m.Result == nil && m.Error == nil) {
		return m, errors.New("the message is not one of JSON-RPC 2.0")
	}
	return m, nil
}

// answerable reports whether m is a request whose id can be repeated in an answer.
func (m *message) answerable() bool {
	return m.Method != "" && len(m.ID) > 0 && len(m.ID) <= maxID && string(m.ID) != "null" && m.ID[0] != '{' && m.ID[0] != '['
}

// elements returns an upper bound of the number of elements of a list, as JSON.
func elements(list []byte) int {
	count, level := 1, 0
	for b := range bounded.Structure(list) {
		switch {
		case b == '{' || b == '[':
			level++
		case b == '}' || b == ']':
			level--
		case level == 1:
			count++
		}
	}
	return count
}

// ending is why a connection ends, for the close frame.
type ending struct {
	code   websocket.StatusCode
	reason string
}

// run exchanges messages until the connection is lost or ctx ends. It then calls lost, ends
// the connection with a close frame, in which a silent tab takes no part, and returns when all
// goroutines have ended.
func (w *wire) run(ctx context.Context, lost func()) {
	w.conn.SetReadLimit(w.limit)
	reading, stop := context.WithCancel(context.Background()) // its end breaks the connection
	ends := make(chan ending, 3)
	var goroutines sync.WaitGroup
	for _, part := range []func() ending{func() ending { return w.read(reading) }, w.write, w.watch} {
		goroutines.Go(func() { ends <- part() })
	}
	var why ending
	select {
	case why = <-ends:
	case why = <-w.failed:
	case <-ctx.Done():
		why = ending{websocket.StatusGoingAway, "the relay closes the page"}
	}
	close(w.done)
	lost()
	force := time.AfterFunc(w.timing.closing, stop)
	_ = w.conn.Close(why.code, why.reason) // the tab may be gone already
	force.Stop()
	stop()
	goroutines.Wait()
}

// fail ends the connection, if nothing else did.
func (w *wire) fail(why ending) {
	select {
	case w.failed <- why:
	default:
	}
}

// read handles the tab's messages in order.
func (w *wire) read(ctx context.Context) ending {
	for {
		kind, data, err := w.conn.Read(ctx)
		switch {
		case errors.Is(err, websocket.ErrMessageTooBig):
			return ending{websocket.StatusMessageTooBig, "a message is too big"}
		case err != nil:
			return ending{websocket.StatusProtocolError, "the connection broke"}
		case kind != websocket.MessageText:
			return ending{websocket.StatusUnsupportedData, "messages must be text"}
		}
		if why := w.receive(data); why != nil {
			return *why
		}
	}
}

// write sends the messages of all callers.
func (w *wire) write() ending {
	for {
		select {
		case data := <-w.out:
			if err := w.put(data); err != nil {
				return ending{websocket.StatusGoingAway, "the tab does not read"}
			}
		case <-w.done:
			return ending{}
		}
	}
}

func (w *wire) put(data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.timing.write)
	defer cancel()
	return w.conn.Write(ctx, websocket.MessageText, data)
}

// watch notices a tab that is gone although its connection looks open.
func (w *wire) watch() ending {
	timer := time.NewTimer(w.timing.ping)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.done:
			return ending{}
		}
		if err := w.ping(); err != nil {
			return ending{websocket.StatusGoingAway, "no answer to a ping"}
		}
		timer.Reset(w.timing.ping)
	}
}

func (w *wire) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), w.timing.pong)
	defer cancel()
	return w.conn.Ping(ctx)
}
