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
