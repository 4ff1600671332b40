package api

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

const (
	// maxUnverified limits the connections that have not carried a verified request.
	// Anybody can open them, and each costs a file descriptor and a goroutine: 234 idle
	// ones once left none for the owner. At the limit, the oldest one is closed for a new
	// one, so that the owner can always connect; connections on which a request is arriving
	// are closed last. A hundred relays that connect at the same moment stay below the limit.
	maxUnverified = 256
	// maxVerified limits the other connections: a hundred relays with ten connections
	// each. Over the limit, a connection remains unverified and may be closed between two
	// requests.
	maxVerified = 1024
)

// connections are the connections of one HTTP server. They are counted so that strangers
// can't use up those of the owner.
type connections struct {
	mu         sync.Mutex
	unverified []*connection // the oldest one first
	verified   int
	all        map[net.Conn]*connection
}

// connection is one of them. Its registry's lock protects its fields.
type connection struct {
	registry *connections
	conn     net.Conn
	active   bool // a request is arriving or being answered
	verified bool
}

type connectionKey struct{}

// ConnContext is the type of http.Server.ConnContext.
type ConnContext func(context.Context, net.Conn) context.Context

// watch registers the connections of the server.
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

// add registers a new connection, and closes another one if there are too many.
func (c *connections) add(conn net.Conn) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unverified) >= maxUnverified {
		victim := c.oldestLocked()
		c.removeLocked(victim)
		victim.conn.Close() // its goroutine ends and reports it as closed
	}
	added := &connection{registry: c, conn: conn}
	c.unverified = append(c.unverified, added)
	c.all[conn] = added
	return added
}

// oldestLocked is the unverified connection to close next.
func (c *connections) oldestLocked() *connection {
	idle := slices.IndexFunc(c.unverified, func(s *connection) bool { return !s.active })
	return c.unverified[max(0, idle)]
}

// removeLocked removes a connection from the registry.
func (c *connections) removeLocked(gone *connection) {
	delete(c.all, gone.conn)
	if gone.verified {
		c.verified--
		return
	}
	c.removeUnverifiedLocked(gone)
}

// removeUnverifiedLocked removes a connection from the unverified ones.
func (c *connections) removeUnverifiedLocked(known *connection) {
	if i := slices.Index(c.unverified, known); i >= 0 {
		c.unverified = slices.Delete(c.unverified, i, i+1)
	}
}

// changed records a new state that net/http reports.
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

// markVerified records that the request's connection carried a verified request.
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

// closeUnverified closes the connection after the answer, unless it carried a verified
// request. Otherwise it would stay open and idle for minutes.
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
