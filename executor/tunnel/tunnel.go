// Package tunnel holds what every way to reach the executor has in common: the
// Tunnel interface, the retry loop, the visitor's address and the filter by
// address. It also holds Local, the listener on this machine. The other kinds
// are packages below this one: ngrok, ssh and cloudflared.
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
	"fmt"
	"log/slog"
	"net"
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

	Traits() Traits
}

// Traits declare what not every tunnel does. The conformance suite tests it.
type Traits struct {
	ReportsVisitor bool // it reports each visitor's address, so that Restrict and rate limits apply to visitors
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
