package api

import (
	"context"
	"net"
	"net/http"
	"sync"
)

const (
	// maxUnverified bounds connections that have carried no verified request. Anybody
	// can open them, each costs a file descriptor and a goroutine, and 234 idle ones
	// once left none for the owner. Past the bound the oldest one is closed, so a
	// newcomer, the owner maybe, always gets in; one whose headers are under way goes
	// last. A hundred relays that connect at the same moment stay below it.
	maxUnverified = 256
	// maxVerified bounds the others: a hundred relays with ten connections each. Past
	// it a connection stays a stranger's, and may be closed between two requests.
	maxVerified = 1024
)

// connections are those of one HTTP server, so that strangers' can't crowd out the
// owner's.
type connections struct {
	mu         sync.Mutex
	unverified []*connection // the oldest first
	verified   int
	all        map[net.Conn]*connection
}

// connection is one of them. Its fields are its registry's to change.
type connection struct {
	registry *connections
	conn     net.Conn
	active   bool // a request is under way, or its headers are
	verified bool
}

type connectionKey struct{}

// ConnContext is the type of http.Server.ConnContext.
type ConnContext func(context.Context, net.Conn) context.Context

// watch has the server keep the registry.
func (c *connections) watch(s *http.Server, visitor ConnContext) {
	c.all = map[net.Conn]*connection{}
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if visitor != nil {
			ctx = visitor(ctx, conn)
		}
		return context.WithValue(ctx, connectionKey{}, c.add(conn))
	}
	s.ConnState = c.changed
}

// add takes a new connection in and closes another one where there are too many.
func (c *connections) add(conn net.Conn) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unverified) >= maxUnverified {
		victim := c.oldestLocked()
		c.removeLocked(victim)
		victim.conn.Close() // its goroutine notices, and reports it closed
	}
	added := &connection{registry: c, conn: conn}
	c.unverified = append(c.unverified, added)
	c.all[conn] = added
	return added
}

// oldestLocked is the stranger to close. The lock is held.
func (c *connections) oldestLocked() *connection {
	for _, s := range c.unverified {
		if !s.active {
			return s
		}
	}
	return c.unverified[0]
}

// removeLocked forgets a connection. The lock is held.
func (c *connections) removeLocked(gone *connection) {
	delete(c.all, gone.conn)
	if gone.verified {
		c.verified--
		return
	}
	c.removeUnverifiedLocked(gone)
}

// removeUnverifiedLocked takes a connection out of the strangers. The lock is held.
func (c *connections) removeUnverifiedLocked(known *connection) {
	for i, s := range c.unverified {
		if s == known {
			c.unverified = append(c.unverified[:i], c.unverified[i+1:]...)
			return
		}
	}
}

// changed follows net/http's view of a connection.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.all[conn]
	if known == nil {
		return
	}
	switch state {
	case http.StateActive:
		known.active = true
	case http.StateIdle:
		known.active = false
	case http.StateClosed, http.StateHijacked:
		c.removeLocked(known)
	}
}

// markVerified notes that the request's connection carried a verified one.
func markVerified(r *http.Request) {
	known, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		return
	}
	c := known.registry
	c.mu.Lock()
	defer c.mu.Unlock()
	if known.verified || c.verified >= maxVerified || c.all[known.conn] != known {
		return
	}
	known.verified = true
	c.verified++
	c.removeUnverifiedLocked(known)
}

// closeUnverified ends the connection with the answer, where it carried no verified
// request: kept open it would be idle for minutes.
func closeUnverified(w http.ResponseWriter, r *http.Request) {
	if known, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		known.registry.mu.Lock()
		defer known.registry.mu.Unlock()
		if known.verified {
			return
		}
	}
	w.Header().Set("Connection", "close")
}
