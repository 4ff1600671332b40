package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	firstDelay = time.Second
	lastDelay  = 30 * time.Second
	// stableAfter is how long a connection must have lasted before its loss
	// resets the delays. Without it, a connection that the operator ends
	// immediately would be opened again in a tight loop.
	stableAfter = 10 * time.Second
	// giveUpAfter bounds the wait for an address that a dead VM still holds.
	// ngrok notices a dead agent by its missing heartbeats, within about a
	// minute; an agent that is still online after three minutes is alive.
	giveUpAfter = 3 * time.Minute
)

// Retry is the retry loop of every kind of tunnel.
type Retry struct {
	First  time.Duration // the delay before the second attempt; delays grow up to 30 s
	GiveUp time.Duration // how long temporary refusals are retried, counted from the first one
	Log    *slog.Logger
}

// NewRetry returns the loop with its usual times.
func NewRetry(log *slog.Logger) Retry {
	return Retry{First: firstDelay, GiveUp: giveUpAfter, Log: log}
}

// Run calls attempt again and again. It returns nil once ctx has ended, and a
// *Refused when an attempt is refused for good. An attempt blocks for as long as
// its connection lasts; it reports to Status when the tunnel is up and where.
func (r Retry) Run(ctx context.Context, ready func(url string), attempt func(ctx context.Context, status *Status) error) error {
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval = r.First, lastDelay
	status := &Status{ready: ready, giveUp: r.GiveUp, now: time.Now}
	for {
		started := time.Now()
		err := attempt(ctx, status)
		if ctx.Err() != nil {
			return nil
		}
		if refused := status.Refusal(err); refused != nil {
			return refused
		}
		if time.Since(started) > stableAfter {
			delays.Reset()
		}
		delay := delays.NextBackOff()
		r.Log.Warn("the tunnel is down", "err", err, "retry_in", delay.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

// Status receives what the attempts of one tunnel report.
type Status struct {
	ready  func(url string)
	url    string
	giveUp time.Duration // how long temporary refusals are retried
	now    func() time.Time

	mu           sync.Mutex
	refusedSince time.Time // the first refusal since the tunnel was up; zero before it
}

// Up reports that the tunnel is up. The next temporary refusal starts the
// give-up timer again.
func (s *Status) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusedSince = time.Time{}
}

// URL reports the public URL. It passes on only a URL that differs from the one
// before.
func (s *Status) URL(url string) {
	if url != s.url {
		s.url = url
		s.ready(url)
	}
}

// Refusal returns the refusal that err holds if it ends the tunnel: it is final,
// or temporary refusals have lasted too long. Otherwise it returns nil, and the
// attempt is worth repeating.
func (s *Status) Refusal(err error) *Refused {
	var refused *Refused
	if !errors.As(err, &refused) || refused.Temporary && !s.refusedTooLong() {
		return nil
	}
	return refused
}

// refusedTooLong records a temporary refusal and says whether retrying is over.
func (s *Status) refusedTooLong() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusedSince.IsZero() {
		s.refusedSince = s.now()
	}
	return s.now().Sub(s.refusedSince) >= s.giveUp
}

// Conn is a connection that arrived through a tunnel. Its RemoteAddr is the
// visitor's address, unless VisitorHeader names the header that holds the
// address. Only a header that the tunnel's own program writes, replacing what
// the visitor wrote, may be named.
type Conn struct {
	net.Conn
	VisitorHeader string
}

// visitor is what is known about the visitor behind a Conn.
type visitor struct {
	addr   netip.Addr
	header string // each request's header of this name holds the address instead
}

type visitorKey struct{}

// ConnContext is for http.Server.ConnContext. It records which connections
// arrived through a tunnel and from where.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(*Conn)
	if !ok {
		return ctx
	}
	return withVisitor(ctx, visitor{addr: hostOf(conn.RemoteAddr().String()), header: conn.VisitorHeader})
}

func withVisitor(ctx context.Context, v visitor) context.Context {
	return context.WithValue(ctx, visitorKey{}, v)
}

// hostOf returns the address in host:port, or the zero address.
func hostOf(hostport string) netip.Addr {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return netip.Addr{}
	}
	return parseAddr(host)
}

// parseAddr returns the address that text holds, or the zero address.
func parseAddr(text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// visitorOf says whether a request arrived through a tunnel, and from which
// address. The address is zero if the tunnel did not report it.
func visitorOf(req *http.Request) (addr netip.Addr, tunnelled bool) {
	v, tunnelled := req.Context().Value(visitorKey{}).(visitor)
	if v.header == "" {
		return v.addr, tunnelled
	}
	values := req.Header.Values(v.header)
	if len(values) != 1 {
		return netip.Addr{}, tunnelled
	}
	return parseAddr(values[0]), tunnelled
}

// ClientAddr returns the visitor's IP address as the tunnel reported it, never
// from a header that a visitor can write. It is empty for a request that did not
// arrive through a tunnel: the RemoteAddr of that request can be trusted.
func ClientAddr(req *http.Request) string {
	addr, _ := visitorOf(req)
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}
