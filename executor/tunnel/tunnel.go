// Package tunnel opens the ways by which a relay reaches the executor and keeps
// them open: none, a listener on this machine; ngrok; a port that an SSH server
// forwards; and a quick tunnel of Cloudflare's own program.
//
// It must not know what is served over a tunnel, read the environment (but PATH,
// for that program), or trust anything a visitor can write, such as a header. It
// is the only package that knows the ngrok SDK and SSH.
//
// Start reading at Tunnel, Traits and New here, then a kind's own file: none.go,
// ssh.go, cloudflared.go, ngrok.go. The executor runs one NewNone for --listen,
// always, and beside it the Tunnel that --tunnel asks for; both serve the same
// handler:
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
	"net/netip"
	"slices"
)

// Tunnel is one way in.
type Tunnel interface {
	// Run opens the tunnel and blocks until ctx has ended and every goroutine
	// it started is gone, or the tunnel can't be had for good.
	//
	// ready gets the base URL without a trailing slash as soon as the tunnel is
	// up, and again whenever it has changed. serve gets a listener and blocks
	// until that listener is closed, as http.Server.Serve does; it may be
	// called again with another listener after a loss that needs one. Neither
	// is called twice at the same time.
	//
	// When serve returns http.ErrServerClosed, Run keeps what is already
	// connected until ctx ends: so shut the HTTP server down first, then end
	// ctx, and running answers arrive. An ended ctx alone cuts them off.
	//
	// Run returns nil when ctx ended, and *Refused when the tunnel's operator
	// said no in a way that another try does not change.
	Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error
}

// Kind names an implementation: the values of --tunnel.
type Kind string

// The kinds there are.
const (
	KindNgrok       Kind = "ngrok"
	KindSSH         Kind = "ssh"
	KindCloudflared Kind = "cloudflared"
	KindNone        Kind = "none"
)

// Kinds are all there are, in the order in which they are told.
var Kinds = []Kind{KindNgrok, KindSSH, KindCloudflared, KindNone}

// ParseKind reads the value of --tunnel. Without one it is ngrok where there is
// an authtoken, else none.
func ParseKind(flag, token string) (Kind, error) {
	switch {
	case slices.Contains(Kinds, Kind(flag)):
		return Kind(flag), nil
	case flag == "" && token != "":
		return KindNgrok, nil
	case flag == "":
		return KindNone, nil
	}
	return "", fmt.Errorf("tunnel %q: want one of %q", flag, Kinds)
}

// Traits are what a kind of tunnel does besides serving. The conformance suite
// holds each kind to what it declares.
type Traits struct {
	Drops        bool // it has a link to lose, and mends it by itself
	ChangesURL   bool // its URL may become another one, which it reports
	Refuses      bool // it can be refused for good, which ends it with *Refused
	TellsVisitor bool // it tells who visits, so that Restrict and limits mean a visitor
}

// Traits are those of the tunnel that New makes.
func (c Config) Traits() Traits {
	switch c.Kind {
	case KindNgrok, KindCloudflared:
		return Traits{Drops: true, ChangesURL: true, Refuses: true, TellsVisitor: true}
	case KindSSH:
		// Behind a proxy every visitor has the proxy's address.
		return Traits{Drops: true, ChangesURL: c.SSH.URL == "" || c.SSH.URL == URLFromServer, Refuses: true, TellsVisitor: c.SSH.URL == ""}
	}
	return Traits{TellsVisitor: true}
}

// Config says which tunnel New makes. A field that the kind has no use for is
// ignored.
type Config struct {
	Kind    Kind
	Allow   []netip.Prefix // ngrok: turned away by ngrok already; Restrict does so for all kinds
	Listen  string         // none: host:port to listen on; port 0 picks a free one
	Token   string         // ngrok: the account's authtoken; never logged
	Domain  string         // ngrok: the account's static domain; empty lets ngrok choose
	Version string         // ngrok: the executor's version, told to ngrok as metadata
	// Server (host:port) and CAFile (PEM) replace ngrok's own connect address
	// and root certificate: COLAB_RELAY_NGROK_SERVER and COLAB_RELAY_NGROK_CA.
	// They are for accounts with an ingress of their own, and for tests.
	Server string
	CAFile string
	SSH    SSH
	// Getenv reads what cloudflared is given of the environment; nil gives it none.
	Getenv func(string) string
	Log    *slog.Logger // nil discards
}

// New checks the config and makes the tunnel. It opens nothing.
func New(c Config) (Tunnel, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = c.Log.With("component", "tunnel")
	switch c.Kind {
	case KindNgrok:
		return newNgrok(c)
	case KindSSH:
		return newSSH(c)
	case KindCloudflared:
		return newCloudflared(c), nil
	case KindNone:
		return NewNone(c.Listen), nil
	}
	return nil, fmt.Errorf("tunnel %q: no such kind", c.Kind)
}
