package api

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxUnverified limits the connections that have not carried a verified request.
	// Anybody can open them, and each costs a file descriptor, a goroutine and about 16 KB.
	// At the limit, one of them is closed for each new one; see victimLocked and
	// welcomeLocked, which has a place for one more. A hundred
	// relays that connect at the same moment stay below the limit.
	maxUnverified = 1024
	// maxVerified limits the other connections: a hundred relays with ten connections
	// each. Over the limit, a connection remains unverified and may be closed between two
	// requests.
	maxVerified = 1024
	// youngFor is how long a new connection is left alone. The first byte of an owner
	// comes through a tunnel up to 300 ms after the connection.
	youngFor = 500 * time.Millisecond
)

// connections are the connections of one HTTP server. They are counted so that strangers
// can't use up those of the owner.
type connections struct {
	mu         sync.Mutex
	unverified []*connection // the oldest one first
	sources    map[netip.Prefix]*source
	verified   int
	all        map[net.Conn]*connection
	guest      *connection // was let in although all others were young
}

// connection is one of them. Its registry's lock protects its fields.
type connection struct {
	registry *connections
	conn     net.Conn
	from     *source
	opened   time.Time
	active   bool // a request is arriving or being answered
	verified bool
}

// source is an address from which unverified connections come. It says nothing where a
// tunnel's program connects for everybody, from 127.0.0.1.
type source struct {
	address netip.Prefix
	open    int // unverified connections
}

type connectionKey struct{}

// ConnContext is the type of http.Server.ConnContext.
type ConnContext func(context.Context, net.Conn) context.Context

// watch registers the connections of the server.
func (c *connections) watch(s *http.Server, visitor ConnContext) {
	c.all, c.sources = map[net.Conn]*connection{}, map[netip.Prefix]*source{}
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if visitor != nil {
			ctx = visitor(ctx, conn)
		}
		return context.WithValue(ctx, connectionKey{}, c.add(conn))
	}
	s.ConnState = c.changed
}

// add registers a new connection, and closes one if there are too many.
func (c *connections) add(conn net.Conn) *connection {
	added, victim := c.register(conn)
	if victim != nil {
		victim.conn.Close() // its goroutine ends
	}
	return added
}

// register returns what add must close, nil if nothing. That may be the new connection.
func (c *connections) register(conn net.Conn) (added, victim *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	address := sourceOf(conn)
	from := c.sources[address]
	if from == nil {
		from = &source{address: address}
		c.sources[address] = from
	}
	from.open++
	added = &connection{registry: c, conn: conn, from: from, opened: time.Now()}
	c.unverified = append(c.unverified, added)
	c.all[conn] = added
	if len(c.unverified) > maxUnverified {
		if victim = c.victimLocked(); victim == added {
			victim = c.welcomeLocked(added)
		}
		if victim != nil {
			c.removeLocked(victim)
		}
	}
	return added, victim
}

// welcomeLocked lets in a connection beyond the limit where all others are young: as the guest, in
// the place of the guest before it. So the last one of a burst, which may be the owner's, is let
// in, and a lasting flood gets no more connections than without that place.
func (c *connections) welcomeLocked(added *connection) (victim *connection) {
	before := c.guest
	if before != nil && (before.verified || c.all[before.conn] != before) {
		before = nil
	}
	if before == nil && len(c.unverified) > maxUnverified+1 {
		return added
	}
	c.guest = added
	return before
}

// sourceOf is the address of a connection's peer. Of IPv6 it is the network of 64 bits, in
// which one machine can use every address.
func sourceOf(conn net.Conn) netip.Prefix {
	at, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // what can't be parsed has the zero address
	addr := at.Addr().Unmap().WithZone("")
	network, _ := addr.Prefix(min(addr.BitLen(), 64))
	return network
}

// victimLocked is the unverified connection to close: of the address that has most of them,
// the oldest one, or the newest one if all of them are young. So an owner with another
// address than the strangers loses none. With the same address, a connection that was let
// in has the time to send its first request, and if more come than can be given that time,
// an owner's is let in as likely as a stranger's. Connections on which a request is
// arriving or being answered are closed last.
func (c *connections) victimLocked() *connection {
	newest, now := len(c.unverified)-1, time.Now()
	onlyActive := !slices.ContainsFunc(c.unverified[:newest], func(k *connection) bool { return !k.active })
	var victim *connection
	for _, known := range c.unverified {
		if known.active && !onlyActive {
			continue
		}
		if victim == nil || known.from.open > victim.from.open ||
			known.from.open == victim.from.open && now.Sub(victim.opened) < youngFor {
			victim = known
		}
	}
	return victim
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
	i := slices.Index(c.unverified, known)
	c.unverified = slices.Delete(c.unverified, i, i+1)
	if known.from.open--; known.from.open == 0 {
		delete(c.sources, known.from.address)
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
