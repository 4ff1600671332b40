package tunnel

import (
	"net"
	"sync"
	"time"
)

// queue is the listener that serve gets. It stands between an HTTP server and
// the SDK's listener because the SDK's Close waits until every connection that
// is already on its way has been accepted: an HTTP server that closes its
// listener under its own lock, as Shutdown does, would wait for itself.
type queue struct {
	from  net.Listener
	conns chan net.Conn

	once   sync.Once
	closed chan struct{} // closed by Close
	drops  chan struct{} // closed when from.Close has returned
	done   chan struct{} // closed when from.Accept has failed; fault is set
	fault  error
}

func newQueue(from net.Listener) *queue {
	q := &queue{
		from:   from,
		conns:  make(chan net.Conn),
		closed: make(chan struct{}),
		drops:  make(chan struct{}),
		done:   make(chan struct{}),
	}
	go q.pump()
	return q
}

// pump accepts until the SDK's listener fails; after Close it turns away what
// still comes.
func (q *queue) pump() {
	defer close(q.done)
	for {
		c, err := q.from.Accept()
		if err != nil {
			q.fault = err
			return
		}
		select {
		case q.conns <- &ngrokConn{c}:
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
		return nil, q.fault
	}
}

// Close implements net.Listener. It returns at once; wait waits.
func (q *queue) Close() error {
	q.once.Do(func() {
		close(q.closed)
		go func() {
			defer close(q.drops)
			_ = q.from.Close() // tells ngrok to drop the endpoint; a dead session needs no telling
		}()
	})
	return nil
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return q.from.Addr() }

// wait blocks until Close has had its whole effect, or for limit.
func (q *queue) wait(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, end := range []chan struct{}{q.drops, q.done} {
		select {
		case <-end:
		case <-timer.C:
			return
		}
	}
}
