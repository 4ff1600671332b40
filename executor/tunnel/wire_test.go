package tunnel

import (
	"net"
	"sync"
	"testing"
)

// wire carries connections to a server, and can be cut or fall silent.
type wire struct {
	Addr string
	to   string
	work sync.WaitGroup

	mu    sync.Mutex
	ends  map[net.Conn]bool
	mute  bool
	count int
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Addr: l.Addr().String(), to: to, ends: map[net.Conn]bool{}}
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

func (w *wire) carry(near net.Conn) {
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

// copy ends with either side. A mute wire swallows what it is given.
func (w *wire) copy(to, from net.Conn) {
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

// Cut ends every connection, as a network fault does. New ones get through.
func (w *wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.ends {
		conn.Close()
		delete(w.ends, conn)
	}
}

// Mute makes the wire swallow all, or carry again.
func (w *wire) Mute(mute bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = mute
}

// Connections counts all that were made.
func (w *wire) Connections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}
