package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"colabrelay/shared/auth"
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

const (
	// maxKeyBurst and keyPerSecond limit the requests signed with one key: so many in a
	// burst, and so many a second after that, which is 6,000 a minute.
	maxKeyBurst  = 6000
	keyPerSecond = 100
	// maxKeyWaiting is how many requests over the limit wait for their turn; see slots.
	// Each occupies memory for its body, at most contract.MaxBodyBytes.
	maxKeyWaiting = 64
	// maxKeyWait is how long a request waits for its turn. A relay waits 20 s for an answer.
	maxKeyWait = 10 * time.Second
	// maxRounds is how many callers' last rounds are remembered: twice as many as can wait.
	maxRounds = 256
)

// keyRate is the rate limit of a key: a token bucket whose callers take turns when it is
// empty. All relays that share the key are slowed down equally, so that none is served
// while another is refused.
type keyRate struct {
	burst   float64
	maxWait time.Duration
	now     func() time.Time
	waiting *slots

	mu       sync.Mutex
	tokens   float64
	refilled time.Time           // when tokens was computed
	queue    []*waiter           // those that wait, the next one to be served first
	rounds   map[auth.Caller]int // the round of each caller's last request that waited
	round    int                 // of the last turn that was given
	timer    *time.Timer         // runs while anyone waits
}

// waiter is a request that waits for its turn. In each round, every caller has one.
type waiter struct {
	caller auth.Caller
	round  int
	turn   chan struct{} // closed to wake it
}

func newKeyRate() *keyRate {
	return &keyRate{
		burst: maxKeyBurst, maxWait: maxKeyWait, now: time.Now, waiting: newSlots(maxKeyWaiting),
		tokens: maxKeyBurst, refilled: time.Now(), rounds: map[auth.Caller]int{},
	}
}

// take waits for the caller's turn. It returns false if there is no slot to wait in, if
// the turn does not come within maxWait, or if ctx ends.
func (k *keyRate) take(ctx context.Context, caller auth.Caller) bool {
	if k.takeNow() {
		return true
	}
	done, ok := k.waiting.take(caller)
	if !ok {
		return false
	}
	defer done()
	mine := k.join(caller)
	late := time.NewTimer(k.maxWait)
	defer late.Stop()
	select {
	case <-mine.turn:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return k.leave(mine)
}

// takeNow takes a token if there is one and no request waits for one.
func (k *keyRate) takeNow() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refillLocked()
	if len(k.queue) > 0 || k.tokens < 1 {
		return false
	}
	k.tokens--
	return true
}

// refillLocked adds the tokens for the time since the last call.
func (k *keyRate) refillLocked() {
	now := k.now()
	k.tokens = min(k.burst, k.tokens+now.Sub(k.refilled).Seconds()*keyPerSecond)
	k.refilled = now
}

// join queues a request in the round after the one of the caller's request before, but in the
// present one if that is over: a caller that waits for each answer before it asks again is always
// late. One that is not remembered is in the next round, so invented callers take nobody's turn.
func (k *keyRate) join(caller auth.Caller) *waiter {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.rounds) > maxRounds {
		clear(k.rounds)
	}
	before, known := k.rounds[caller]
	if !known {
		before = k.round
	}
	mine := &waiter{caller, max(before+1, k.round), make(chan struct{})}
	k.rounds[caller] = mine.round
	at := slices.IndexFunc(k.queue, func(other *waiter) bool { return other.round > mine.round })
	if at < 0 {
		at = len(k.queue)
	}
	k.queue = slices.Insert(k.queue, at, mine)
	if k.timer == nil {
		k.timer = time.AfterFunc(k.untilTokenLocked(), k.grantTurns)
	}
	return mine
}

// untilTokenLocked is the time until the next token.
func (k *keyRate) untilTokenLocked() time.Duration {
	return max(0, time.Duration((1-k.tokens)/keyPerSecond*float64(time.Second)))
}

// grantTurns gives the available tokens to those that wait.
func (k *keyRate) grantTurns() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refillLocked()
	for k.tokens >= 1 && len(k.queue) > 0 {
		next := k.queue[0]
		k.queue = k.queue[1:]
		close(next.turn)
		k.tokens--
		k.round = next.round
	}
	k.timer = nil
	if len(k.queue) > 0 {
		k.timer = time.AfterFunc(k.untilTokenLocked(), k.grantTurns)
	}
}

// leave removes a waiting request. It reports whether the request got its turn before that.
func (k *keyRate) leave(mine *waiter) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := slices.Index(k.queue, mine)
	if at >= 0 {
		k.queue = slices.Delete(k.queue, at, at+1)
		k.rounds[mine.caller]-- // what it does not use
	}
	return at < 0
}

// slots limits the requests that wait for something. All callers share size slots. As many
// more are reserved for callers that have none, so that a caller with many requests can't
// keep others out.
type slots struct {
	size int

	mu        sync.Mutex
	total     int
	perCaller map[auth.Caller]int // without those that have none
}

func newSlots(size int) *slots { return &slots{size: size, perCaller: map[auth.Caller]int{}} }

// take takes a slot, which done releases. ok is false if none is free.
func (p *slots) take(caller auth.Caller) (done func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total >= p.size && (p.perCaller[caller] > 0 || p.total >= 2*p.size) {
		return nil, false
	}
	p.total++
	p.perCaller[caller]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.total--
		if p.perCaller[caller]--; p.perCaller[caller] == 0 {
			delete(p.perCaller, caller)
		}
	}, true
}

// bodyLimits is how slowly a body may be transferred. A short limit for the whole body
// would cut parts of files on a slow connection: eight parts of 8 MiB in parallel over
// 1 Mbit/s take nine minutes each.
type bodyLimits struct {
	stall time.Duration // for each piece
	total time.Duration // for the whole body, so that a peer that sends a byte now and then is cut too
}

// stallTimeout is long because a sender may be blocked while a slow connection drains the
// system's send buffer.
const stallTimeout = time.Minute

// next is the deadline of a piece that starts now, in a body that must end by end.
func (p bodyLimits) next(end time.Time) time.Time {
	piece := time.Now().Add(p.stall)
	if end.Before(piece) {
		return end
	}
	return piece
}

// pieceBytes is how many bytes of an answer share one deadline, one record at most. At an
// eighth of 1 Mbit/s they are sent within 5 s.
const pieceBytes = 64 << 10

// send writes an answer, and does not wait for the handler's end: what follows, such as the
// access log, does not delay it. It fails if the body does, or if the caller has disconnected.
func (p bodyLimits) send(w http.ResponseWriter, status int, body io.Reader) error {
	to := &stallWriter{w: w, conn: http.NewResponseController(w), limits: p, end: time.Now().Add(p.total)}
	to.conn.SetWriteDeadline(p.next(to.end))
	w.WriteHeader(status)
	if _, err := io.Copy(to, body); err != nil {
		return err
	}
	return to.conn.Flush()
}

// stallWriter writes a body to a connection and gives each piece its own deadline.
type stallWriter struct {
	w      http.ResponseWriter
	conn   *http.ResponseController
	limits bodyLimits
	end    time.Time
}

func (s *stallWriter) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		s.conn.SetWriteDeadline(s.limits.next(s.end))
		m, err = s.w.Write(b[n:min(n+pieceBytes, len(b))])
		n += m
	}
	return n, err
}
