package ngrok

import (
	"net"
	"sync"
	"time"

	"colabrelay/executor/tunnel"
)

// queue is the listener that serve gets. It stands between an HTTP server and
// the SDK's listener because the SDK's Close waits until every connection that
// has already arrived has been accepted: an HTTP server that closes its listener
// under its own lock, as Shutdown does, would wait for itself.
type queue struct {
	from  net.Listener
	conns chan net.Conn

	once    sync.Once
	closed  chan struct{} // closed by Close
	dropped chan struct{} // closed when from.Close has returned
	done    chan struct{} // closed when from.Accept has failed; err is set
	err     error
}

func newQueue(from net.Listener) *queue {
	q := &queue{
		from:    from,
		conns:   make(chan net.Conn),
		closed:  make(chan struct{}),
		dropped: make(chan struct{}),
		done:    make(chan struct{}),
	}
	go q.pump()
	return q
}

// pump accepts connections until the SDK's listener fails. After Close it closes
// those that still arrive.
func (q *queue) pump() {
	defer close(q.done)
	for {
		c, err := q.from.Accept()
		if err != nil {
			q.err = err
			return
		}
		select {
		case q.conns <- &tunnel.Conn{Conn: &stream{c}}:
		case <-q.closed:
			c.Close()
		}
	}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case <-q.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	case <-q.done:
		return nil, q.err
	}
}

// Close implements net.Listener. It returns immediately; wait waits for its
// effect.
func (q *queue) Close() error {
	q.once.Do(func() {
		close(q.closed)
		go func() {
			defer close(q.dropped)
			_ = q.from.Close() // asks ngrok to drop the endpoint; a dead session has none
		}()
	})
	return nil
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return q.from.Addr() }

// wait blocks until Close has taken full effect, or until the timeout.
func (q *queue) wait(timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for _, end := range []chan struct{}{q.dropped, q.done} {
		select {
		case <-end:
		case <-timer.C:
			return
		}
	}
}

// stream is one visitor's connection. The SDK gives it the visitor's address as
// its RemoteAddr.
type stream struct{ net.Conn }

// SetWriteDeadline does nothing. A write deadline that expires makes the SDK's
// multiplexer return a frame to its stream while the session's writer still
// uses it, and the next write then corrupts the whole session. ngrok itself
// disconnects a visitor that does not read.
func (*stream) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline sets the read deadline only: see SetWriteDeadline.
func (s *stream) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }
