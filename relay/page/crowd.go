package page

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxWaiting bounds the connections that have not finished a handshake. A further one ends
// the oldest: the page needs milliseconds, while programs that only hold connections open
// would otherwise keep it out.
const maxWaiting = 64

// crowd are the connections that have not finished a handshake, oldest first.
type crowd struct {
	open  sync.WaitGroup // counts all of them, also those that are being ended
	mu    sync.Mutex
	conns []net.Conn
}

// change is told each change of a connection by the HTTP server.
func (c *crowd) change(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open.Add(1)
		if len(c.conns) == maxWaiting {
			_ = c.conns[0].Close()
			c.conns = slices.Delete(c.conns, 0, 1)
		}
		c.conns = append(c.conns, conn)
	case http.StateHijacked, http.StateClosed:
		c.open.Done()
		if i := slices.Index(c.conns, conn); i >= 0 {
			c.conns = slices.Delete(c.conns, i, i+1)
		}
	}
}
