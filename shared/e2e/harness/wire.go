package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
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

// awaitRead returns when the programs at both ends have read what passed the wire, as they have
// on a real line, whose ends are not on the same busy machine. Where the system has no
// /proc/net/tcp it returns at once.
func (w *Wire) awaitRead() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = Poll(ctx, func() (bool, error) {
		table, err := os.ReadFile("/proc/net/tcp")
		return err != nil || !queued(string(table), w.Addr, w.target), nil
	})
}

// queued reports whether the table, as in proc(5), has a connection to or from the wire whose
// program has not read or whose system has not sent everything. What the wire itself has not read
// does not count.
func queued(table, wire, target string) bool {
	const empty = "00000000"
	wirePort, targetPort := hexPort(wire), hexPort(target)
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)            // number, local and remote address, state, queues
		if len(fields) < 5 || fields[3] != "01" { // established
			continue
		}
		send, receive, _ := strings.Cut(fields[4], ":")
		local, remote := fields[1][len(fields[1])-4:], fields[2][len(fields[2])-4:]
		switch {
		case remote == targetPort, local == wirePort: // the wire's
			if send != empty {
				return true
			}
		case local == targetPort, remote == wirePort: // the programs'
			if receive != empty {
				return true
			}
		}
	}
	return false
}

// hexPort returns the port of an address as /proc/net/tcp has it.
func hexPort(address string) string {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%04X", a.Port)
}

// Recording is what one connection carried.
type Recording struct {
	Up, Down []byte // to the target, and from it
}

// recorder keeps what connections carry, in memory.
type recorder struct {
	mu  sync.Mutex
	on  bool
	all []*Recording
}

// Record makes the proxy keep the bytes of all later connections.
func (w *Wire) Record() {
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	w.recorder.on = true
}

// Recorded returns what was recorded. It is complete after Close.
func (w *Wire) Recorded() (all []Recording) {
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	for _, r := range w.recorder.all {
		all = append(all, Recording{Up: bytes.Clone(r.Up), Down: bytes.Clone(r.Down)})
	}
	return all
}

// open returns what keeps the bytes of a new connection.
func (r *recorder) open() (up, down func([]byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on {
		return func([]byte) {}, func([]byte) {}
	}
	one := &Recording{}
	r.all = append(r.all, one)
	keep := func(into *[]byte) func([]byte) {
		return func(p []byte) {
			r.mu.Lock()
			defer r.mu.Unlock()
			*into = append(*into, p...)
		}
	}
	return keep(&one.Up), keep(&one.Down)
}

const (
	// wireChunk is the most bytes that a Wire forwards at once.
	wireChunk = 32 << 10
	// wireHeld is how many chunks are under way in one direction of a slow connection:
	// 32 MiB, so that a delay of 50 ms permits 640 MB/s.
	wireHeld = 1024
)

var errWireClosed = errors.New("the other end is closed")

// slow returns what to write to: the connection itself, or one end of a queue that delays
// each chunk by half a round trip, and no chunk leaves before opened.
func (w *Wire) slow(to, from net.Conn, opened time.Time) io.WriteCloser {
	if w.roundTrip == 0 {
		return to
	}
	q := &delayed{to: to, from: from, opened: opened, delay: w.roundTrip / 2, chunks: make(chan delayedChunk, wireHeld), ended: make(chan struct{})}
	w.ended.Go(q.forward)
	return q
}

// delayed forwards chunks late, in order.
type delayed struct {
	to, from net.Conn
	opened   time.Time
	delay    time.Duration
	chunks   chan delayedChunk
	ended    chan struct{} // closed when nothing more is forwarded
}

type delayedChunk struct {
	due  time.Time
	data []byte
}

// Write queues a copy of p.
func (d *delayed) Write(p []byte) (int, error) {
	leaves := time.Now()
	if leaves.Before(d.opened) {
		leaves = d.opened
	}
	select {
	case d.chunks <- delayedChunk{due: leaves.Add(d.delay), data: slices.Clone(p)}:
		return len(p), nil
	case <-d.ended:
		return 0, errWireClosed
	}
}

// Close closes the connection when all that was written has been forwarded.
func (d *delayed) Close() error {
	close(d.chunks)
	return nil
}

func (d *delayed) forward() {
	defer d.from.Close()
	defer d.to.Close()
	defer close(d.ended)
	for chunk := range d.chunks {
		<-time.After(time.Until(chunk.due))
		if _, err := d.to.Write(chunk.data); err != nil {
			return
		}
	}
}

// requestCounter counts the request lines of HTTP/1.1 in a stream.
type requestCounter struct {
	tail []byte // the last bytes of the stream, shorter than requestMark
}

var requestMark = []byte(" HTTP/1.1\r\n")

// count returns how many request lines end in p, which follows the earlier bytes.
func (c *requestCounter) count(p []byte) int64 {
	keep := len(requestMark) - 1
	seam := append(c.tail, p[:min(keep, len(p))]...)
	n := bytes.Count(seam, requestMark) + bytes.Count(p, requestMark)
	if len(p) >= keep {
		seam = p
	}
	c.tail = bytes.Clone(seam[max(0, len(seam)-keep):])
	return int64(n)
}
