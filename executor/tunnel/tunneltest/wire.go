package tunneltest

import (
	"net"
	"sync"
	"testing"
)

// Wire forwards TCP connections to a server. It can cut them or go silent.
type Wire struct {
	Addr string // where it listens
	to   string
	work sync.WaitGroup

	mu    sync.Mutex
	ends  map[net.Conn]bool
	mute  bool
	count int
}

// NewWire forwards connections from address to the server at to, until the test
// has ended.
func NewWire(t *testing.T, address, to string) *Wire {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{Addr: l.Addr().String(), to: to, ends: map[net.Conn]bool{}}
	w.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.work.Go(func() { w.carry(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); w.Cut(); w.work.Wait() })
	return w
}

func (w *Wire) carry(near net.Conn) {
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		near.Close()
		return
	}
	w.mu.Lock()
	w.ends[near], w.ends[far] = true, true
	w.count++
	w.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { w.copy(near, far) })
	both.Go(func() { w.copy(far, near) })
	both.Wait()
}

// copy ends when either side ends. A mute wire drops what it reads.
func (w *Wire) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		mute := w.mute
		w.mu.Unlock()
		if err == nil && !mute {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// Cut closes every connection, as a network fault does. New connections work.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.ends {
		conn.Close()
		delete(w.ends, conn)
	}
}

// Mute makes the wire drop all bytes, or forward them again.
func (w *Wire) Mute(mute bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = mute
}

// Connections returns how many connections were made so far.
func (w *Wire) Connections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}
