package harness

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Wire is a TCP proxy for one address. It counts connections, HTTP requests and the bytes
// in both directions, can be slow, can record the bytes, and closes all connections when the
// bytes reach given totals.
type Wire struct {
	Addr string // where it listens

	target    string
	listener  net.Listener
	roundTrip time.Duration
	up, down  atomic.Int64
	requests  atomic.Int64
	accepted  atomic.Int64
	recorder  recorder

	mu    sync.Mutex
	conns map[net.Conn]bool
	cuts  []int64 // the remaining totals at which connections are closed
	done  int
	ended sync.WaitGroup
}

// NewWire starts a proxy on loopback that forwards to target.
func NewWire(target string) (*Wire, error) { return NewSlowWire(target, 0) }

// NewSlowWire is NewWire with a delay: a round trip takes roundTrip more, and a new
// connection costs one round trip before its first byte, as the handshake of TCP does.
func NewSlowWire(target string, roundTrip time.Duration) (*Wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &Wire{Addr: l.Addr().String(), target: target, listener: l, roundTrip: roundTrip, conns: map[net.Conn]bool{}}
	w.ended.Go(w.accept)
	return w, nil
}

// Close stops the proxy.
func (w *Wire) Close() {
	w.listener.Close()
	w.mu.Lock()
	w.cutAll()
	w.mu.Unlock()
	w.ended.Wait()
}

// CutAt resets the counts. The proxy then closes all connections each time the bytes in
// both directions together reach the next of these totals, which must increase.
func (w *Wire) CutAt(totals ...int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range []*atomic.Int64{&w.up, &w.down, &w.requests, &w.accepted} {
		n.Store(0)
	}
	w.cuts, w.done = totals, 0
}

// Passed returns the bytes sent to the target (up) and from it (down) since CutAt, and how
// often connections were closed.
func (w *Wire) Passed() (up, down int64, cuts int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up.Load(), w.down.Load(), w.done
}

// Traffic is what passed a Wire since CutAt.
type Traffic struct {
	Connections int64 // that were opened
	Requests    int64 // of HTTP/1.1
	Up, Down    int64 // bytes to the target and from it
}

// Traffic returns what passed since CutAt.
func (w *Wire) Traffic() Traffic {
	return Traffic{Connections: w.accepted.Load(), Requests: w.requests.Load(), Up: w.up.Load(), Down: w.down.Load()}
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
		w.accepted.Add(1)
		var request requestCounter
		keepUp, keepDown := w.recorder.open()
		w.ended.Go(func() {
			w.copy(w.slow(far, near, time.Now().Add(w.roundTrip)), near, &w.up, func(p []byte) {
				keepUp(p)
				w.requests.Add(request.count(p))
			})
		})
		w.ended.Go(func() { w.copy(w.slow(near, far, time.Time{}), far, &w.down, keepDown) })
	}
}

func (w *Wire) add(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
}

// copy forwards until an end closes, and then closes both. It calls seen before it forwards,
// so that a request is counted before it is answered, and counts in passed what it forwarded.
func (w *Wire) copy(to io.WriteCloser, from net.Conn, passed *atomic.Int64, seen func([]byte)) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, wireChunk)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			seen(buf[:n])
			n = min(n, w.untilCut()) // the rest is lost
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
			passed.Add(int64(n))
			w.cutWhenDue()
		}
		if err != nil {
			return
		}
	}
}

// untilCut returns how many bytes may pass before the connections are closed.
func (w *Wire) untilCut() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.cuts) == 0 {
		return wireChunk
	}
	return int(max(0, min(wireChunk, w.cuts[0]-w.up.Load()-w.down.Load())))
}

// cutWhenDue closes all connections when a total is reached, before anything more can pass.
func (w *Wire) cutWhenDue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.cuts) == 0 || w.up.Load()+w.down.Load() < w.cuts[0] {
		return
	}
	w.awaitRead() // while nothing else passes
	w.cuts, w.done = w.cuts[1:], w.done+1
	w.cutAll()
}

// cutAll closes all connections. The caller holds w.mu.
func (w *Wire) cutAll() {
	for c := range w.conns {
		c.Close()
	}
	clear(w.conns)
}
