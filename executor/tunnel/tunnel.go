// Package tunnel holds what every way to reach the executor has in common: the
// Tunnel interface, the retry loop, the visitor's address and the filter by
// address. It also holds Local, the listener on this machine. The other kinds
// are packages below this one: ngrok, and child for ssh and cloudflared.
//
// It must not know what is served over a tunnel, and must not trust anything
// that a visitor can write, such as a header.
//
// Start reading at Tunnel here, then at Run in a kind's own package. The
// executor always runs a Local for --listen, and next to it the tunnel that
// --tunnel names; both serve the same handler:
//
//	srv.ConnContext = tunnel.ConnContext // makes ClientAddr work
//	g.Go(func() error { return local.Run(ctx, localReady, srv.Serve) })
//	g.Go(func() error { return public.Run(ctx, publicReady, srv.Serve) })
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Tunnel makes the executor reachable at a URL. The conformance suite in
// tunneltest holds every kind to this description.
type Tunnel interface {
	// Run opens the tunnel and blocks until ctx has ended and every goroutine
	// that it started has returned, or until the tunnel is refused for good.
	//
	// It calls ready with the base URL, without a trailing slash, as soon as
	// the tunnel is up, and again whenever the URL has changed. It calls serve
	// with a listener; serve blocks until that listener is closed, as
	// http.Server.Serve does. Run may call serve again with another listener
	// after a lost connection. Neither function is called concurrently with
	// itself.
	//
	// When serve returns http.ErrServerClosed, Run keeps open connections until
	// ctx ends. So shut the HTTP server down first and then end ctx: responses
	// in progress are delivered. Ending ctx alone cuts them off.
	//
	// Run returns nil when ctx has ended, and a *Refused when the tunnel's
	// operator refuses in a way that no retry changes.
	Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error

	// Check tests whether the tunnel could be opened, without publishing
	// anything. It returns one line that describes what it found. Its error
	// says what to do.
	Check(ctx context.Context) (found string, err error)

	// ReportsVisitor says whether it reports each visitor's address, so that Restrict and rate
	// limits apply to visitors.
	ReportsVisitor() bool
}

// Refused is the error of a tunnel that its operator does not grant. Its text is
// one line that says what to do.
type Refused struct {
	By          string // "ngrok", "cloudflared", `ssh server "example.com"`
	Code        string // such as "ERR_NGROK_105"; empty when the operator has no codes
	Explanation string // what it means and what to do, without a full stop
	Temporary   bool   // it may pass within minutes: the retry loop keeps trying for a while
}

func (r *Refused) Error() string {
	if r.Code == "" {
		return fmt.Sprintf("no tunnel through %s: %s", r.By, r.Explanation)
	}
	return fmt.Sprintf("%s refused the tunnel: %s (%s)", r.By, r.Explanation, r.Code)
}

// Logger returns the logger of a tunnel. A nil log discards everything.
func Logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return log.With("component", "tunnel")
}

// ParseCIDR reads an address range such as 203.0.113.0/24, or a single address.
func ParseCIDR(text string) (netip.Prefix, error) {
	text = strings.TrimSpace(text)
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q: must be an address or a range, such as 203.0.113.7 or 203.0.113.0/24", text)
	}
	return prefix.Masked(), nil
}

// Restrict answers 403 to visitors outside the allowed ranges before it reads
// anything else of the request. An empty list allows everybody. Requests from
// this machine to --listen are always allowed. A visitor whose address the
// tunnel did not report is refused.
func Restrict(allowed []netip.Prefix, next http.Handler) http.Handler {
	if len(allowed) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		addr, tunnelled := visitorOf(req)
		if !tunnelled {
			addr = hostOf(req.RemoteAddr)
		}
		inRange := func(prefix netip.Prefix) bool { return prefix.Contains(addr) }
		if !tunnelled && addr.IsLoopback() || slices.ContainsFunc(allowed, inRange) {
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Connection", "close")
		http.Error(w, "this address is not allowed (--allow-cidr)", http.StatusForbidden)
	})
}

// Local is a listener on this machine, without a tunnel.
type Local struct{ address string }

// NewLocal returns the listener on host:port. Port 0 picks a free port.
func NewLocal(address string) *Local { return &Local{address: address} }

// ReportsVisitor implements Tunnel.
func (*Local) ReportsVisitor() bool { return true }

// Check implements Tunnel.
func (l *Local) Check(ctx context.Context) (string, error) {
	listener, err := l.listen(ctx)
	if err != nil {
		return "", err
	}
	listener.Close()
	return l.address + " is free", nil
}

func (l *Local) listen(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", l.address)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %v; choose another address with --listen", l.address, err)
	}
	return listener, nil
}

// Run implements Tunnel. The URL holds the port that was picked.
func (l *Local) Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error {
	listener, err := l.listen(ctx)
	if err != nil {
		return err
	}
	ready("http://" + dialable(listener.Addr().(*net.TCPAddr)))
	served := Serve(func() error { return serve(listener) }, ctx.Done(), nil)
	listener.Close()
	err = served.Err()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve on %s: %v", listener.Addr(), err)
}

// dialable turns "all addresses" into one that a program on this machine can
// connect to: Windows can't dial 0.0.0.0.
func dialable(addr *net.TCPAddr) string {
	if !addr.IP.IsUnspecified() {
		return addr.String()
	}
	local := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: addr.Port}
	return local.String()
}

// Task is a function that runs in the background.
type Task struct {
	Done <-chan struct{} // closed when the function has returned
	err  error
}

// Start runs f in the background.
func Start(f func() error) *Task {
	done := make(chan struct{})
	t := &Task{Done: done}
	go func() {
		defer close(done)
		t.err = f()
	}()
	return t
}

// Err waits until the function has returned and returns its error.
func (t *Task) Err() error {
	<-t.Done
	return t.err
}

// Serve runs serve in the background. It returns when serve has failed or one of the
// channels is closed. After a graceful shutdown of the HTTP server it waits for the
// channels, because responses may still be in progress.
func Serve(serve func() error, a, b <-chan struct{}) *Task {
	task := Start(serve)
	done := task.Done
	for {
		select {
		case <-done:
			if !errors.Is(task.Err(), http.ErrServerClosed) {
				return task
			}
			done = nil
		case <-a:
			return task
		case <-b:
			return task
		}
	}
}

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
