package harness

import (
	"net"
	"sync"
	"sync/atomic"
)

// Wire is a TCP proxy for one address. It counts the bytes in both directions and closes
// all connections when the total reaches given values.
type Wire struct {
	Addr string // where it listens

	target   string
	listener net.Listener
	up, down atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
	cuts  []int64 // the remaining totals at which connections are closed
	done  int
	ended sync.WaitGroup
}

// NewWire starts a proxy on loopback that forwards to target.
func NewWire(target string) (*Wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &Wire{Addr: l.Addr().String(), target: target, listener: l, conns: map[net.Conn]bool{}}
	w.ended.Go(w.accept)
	return w, nil
}

// Close stops the proxy.
func (w *Wire) Close() {
	w.listener.Close()
	w.cutAll()
	w.ended.Wait()
}

// CutAt resets the counts. The proxy then closes all connections each time the bytes in
// both directions together reach the next of these totals, which must increase.
func (w *Wire) CutAt(totals ...int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up.Store(0)
	w.down.Store(0)
	w.cuts, w.done = totals, 0
}

// Passed returns the bytes sent to the target (up) and from it (down) since CutAt, and how
// often connections were closed.
func (w *Wire) Passed() (up, down int64, cuts int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up.Load(), w.down.Load(), w.done
}

func (w *Wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.target)
		if err != nil {
			near.Close()
			continue
		}
		w.add(near, far)
		w.ended.Go(func() { w.copy(far, near, &w.up) })
		w.ended.Go(func() { w.copy(near, far, &w.down) })
	}
}

func (w *Wire) add(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
}

func (w *Wire) copy(to, from net.Conn, count *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
			count.Add(int64(n))
			w.cutWhenDue()
		}
		if err != nil {
			return
		}
	}
}

func (w *Wire) cutWhenDue() {
	w.mu.Lock()
	due := len(w.cuts) > 0 && w.up.Load()+w.down.Load() >= w.cuts[0]
	if due {
		w.cuts, w.done = w.cuts[1:], w.done+1
	}
	w.mu.Unlock()
	if due {
		w.cutAll()
	}
}

func (w *Wire) cutAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
	clear(w.conns)
}
