package harness

import (
	"net"
	"sync"
	"sync/atomic"
)

// Wire is a TCP line to one address that counts what passes and cuts every
// connection each time another stretch has passed in one direction or the other.
type Wire struct {
	Addr string // where it listens

	target   string
	listener net.Listener
	up, down atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
	cuts  []int64 // totals at which the line is still to be cut
	done  int
	ended sync.WaitGroup
}

// NewWire listens on loopback and leads to target.
func NewWire(target string) (*Wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &Wire{Addr: l.Addr().String(), target: target, listener: l, conns: map[net.Conn]bool{}}
	w.ended.Go(w.accept)
	return w, nil
}

// Close ends the line.
func (w *Wire) Close() {
	w.listener.Close()
	w.cutAll()
	w.ended.Wait()
}

// CutAt begins to count anew and cuts all connections whenever one of these totals
// of bytes, both directions together, has passed. They must rise.
func (w *Wire) CutAt(totals ...int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up.Store(0)
	w.down.Store(0)
	w.cuts, w.done = totals, 0
}

// Passed is how many bytes went up, towards the target, and down since CutAt, and
// how often the line was cut.
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
		w.hold(near, far)
		w.ended.Go(func() { w.carry(far, near, &w.up) })
		w.ended.Go(func() { w.carry(near, far, &w.down) })
	}
}

func (w *Wire) hold(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
}

func (w *Wire) carry(to, from net.Conn, count *atomic.Int64) {
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
