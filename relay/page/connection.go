package page

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// ending is why a connection ends, for the close frame.
type ending struct {
	code   websocket.StatusCode
	reason string
}

// run exchanges messages until the connection is lost or ctx ends. It then calls lost, ends
// the connection and returns when all goroutines have ended.
func (w *wire) run(ctx context.Context, lost func()) {
	w.conn.SetReadLimit(w.limit)
	ends := make(chan ending, 3)
	var goroutines sync.WaitGroup
	for _, part := range []func() ending{w.read, w.write, w.watch} {
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
	hangUp(w.conn, w.raw, why, w.timing.closing)
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
func (w *wire) read() ending {
	for {
		kind, r, err := w.conn.Reader(context.Background())
		if err != nil {
			return endingOf(err)
		}
		if kind != websocket.MessageText {
			return ending{websocket.StatusUnsupportedData, "messages must be text"}
		}
		var data bytes.Buffer
		if _, err := data.ReadFrom(heard{r, w}); err != nil {
			return endingOf(err)
		}
		if why := w.receive(data.Bytes()); why != nil {
			return *why
		}
	}
}

// heard counts what is read, so that a large message on a slow line is a sign of life.
type heard struct {
	io.Reader
	w *wire
}

// heardPart is the number of bytes that count once. A read waits until it has all of them.
const heardPart = 64 << 10

func (h heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p[:min(len(p), heardPart)])
	h.w.heard.Add(1)
	return n, err
}

// endingOf returns how to end after an error of reading.
func endingOf(err error) ending {
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return ending{websocket.StatusMessageTooBig, "a message is too big"}
	}
	return ending{websocket.StatusProtocolError, "the connection broke"}
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
		before := w.heard.Load()
		if err := w.ping(); err != nil && w.heard.Load() == before {
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

// hangUp ends a connection with a close frame. A tab that does not take part has the given
// time.
func hangUp(conn *websocket.Conn, raw net.Conn, why ending, limit time.Duration) {
	force := time.AfterFunc(limit, func() { _ = raw.Close() })
	defer force.Stop()
	_ = conn.Close(why.code, why.reason) // the tab may be gone already
}
