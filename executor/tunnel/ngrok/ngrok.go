// Package ngrok opens a tunnel through an ngrok account.
//
// It must not log the account's authtoken. It is the only package that knows the
// ngrok SDK. The SDK reconnects a dropped session automatically and keeps the
// URL; this package does what the SDK does not: it decides when to give up, and
// when a completely new session is needed.
//
// Start reading at New, then at session in session.go.
package ngrok

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	sdk "golang.ngrok.com/ngrok/v2"

	"colabrelay/executor/tunnel"
)

const (
	defaultServer = "connect.ngrok-agent.com:443"
	// dialTimeout bounds connecting. Without it, a server that does not answer
	// would block an attempt until the machine's TCP gives up. The SDK's
	// heartbeats bound the login.
	dialTimeout = 20 * time.Second
)

// Config says how to reach ngrok and what to request.
type Config struct {
	Token   string         // the account's authtoken
	Domain  string         // the account's static domain; empty lets ngrok choose
	Version string         // the executor's version, sent to ngrok as metadata
	Allow   []netip.Prefix // ngrok itself refuses visitors outside these ranges; empty allows all
	// Server (host:port) and CAFile (PEM) replace ngrok's own connect address and
	// root certificate, for accounts with an ingress of their own and for tests.
	Server string
	CAFile string
	// Proxy returns the proxy for a request, as in http.Transport; nil for none.
	Proxy func(*http.Request) (*url.URL, error)
	Log   *slog.Logger // nil discards
}

// Tunnel reaches the executor through ngrok.
type Tunnel struct {
	token    string
	server   string
	dialer   *dialer
	options  []sdk.AgentOption
	endpoint []sdk.EndpointOption
	log      *slog.Logger
	retry    tunnel.Retry
}

// New checks the config. It opens nothing.
func New(c Config) (*Tunnel, error) {
	if c.Token == "" {
		return nil, errors.New("ngrok needs an authtoken: set NGROK_AUTHTOKEN from https://dashboard.ngrok.com/get-started/your-authtoken")
	}
	log := tunnel.Logger(c.Log)
	t := &Tunnel{token: c.Token, server: defaultServer, log: log, retry: tunnel.NewRetry(log)}
	t.dialer = &dialer{Dialer: net.Dialer{Timeout: dialTimeout}}
	metadata := strings.TrimSpace("colab-relay " + c.Version)
	t.options = []sdk.AgentOption{
		sdk.WithAuthtoken(c.Token),
		sdk.WithAgentMetadata(metadata),
		sdk.WithDialer(t.dialer),
		// The SDK logs each attempt as an error. This package logs what matters.
		sdk.WithLogger(slog.New(slog.DiscardHandler)),
	}
	t.endpoint = []sdk.EndpointOption{sdk.WithMetadata(metadata)}
	if err := errors.Join(t.addDomain(c.Domain), t.addPolicy(c.Allow), t.addServer(c.Server), t.addCAs(c.CAFile), t.addProxy(c.Proxy)); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Tunnel) addDomain(domain string) error {
	if domain == "" {
		return nil
	}
	address, err := domainURL(domain)
	t.endpoint = append(t.endpoint, sdk.WithURL(address))
	return err
}

// domainURL accepts what people paste: the bare name or the whole URL.
func domainURL(domain string) (string, error) {
	host := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(domain), "https://"), "/")
	u, err := url.Parse("https://" + host)
	if err != nil || u.Host != host || u.Port() != "" || !strings.Contains(host, ".") {
		return "", fmt.Errorf("ngrok domain %q: must be a name such as your-name.ngrok-free.app", domain)
	}
	return u.String(), nil
}

// addPolicy makes ngrok itself refuse visitors outside the ranges, so that their
// requests do not count against the account's quota.
func (t *Tunnel) addPolicy(allowed []netip.Prefix) error {
	if len(allowed) == 0 {
		return nil
	}
	type object map[string]any
	policy, err := json.Marshal(object{"on_tcp_connect": []object{{"actions": []object{{
		"type": "restrict-ips", "config": object{"enforce": true, "allow": allowed},
	}}}}})
	if err != nil {
		return fmt.Errorf("write ngrok's traffic policy: %v", err)
	}
	t.endpoint = append(t.endpoint, sdk.WithTrafficPolicy(string(policy)))
	return nil
}

func (t *Tunnel) addServer(server string) error {
	if server == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(server); err != nil {
		return fmt.Errorf("ngrok server %q: must be host:port", server)
	}
	t.server = server
	t.options = append(t.options, sdk.WithAgentConnectURL(server))
	return nil
}

func (t *Tunnel) addCAs(file string) error {
	if file == "" {
		return nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read ngrok's root certificate: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("read ngrok's root certificate: no PEM certificate in %q", file)
	}
	t.options = append(t.options, sdk.WithAgentConnectCAs(pool))
	return nil
}

// Traits implements tunnel.Tunnel.
func (*Tunnel) Traits() tunnel.Traits {
	return tunnel.Traits{ReportsVisitor: true}
}

// Check implements tunnel.Tunnel. It connects to ngrok without logging in.
func (t *Tunnel) Check(ctx context.Context) (string, error) {
	conn, err := t.dialer.DialContext(ctx, "tcp", t.server)
	if err != nil {
		return "", fmt.Errorf("ngrok can't be reached: %v", err)
	}
	conn.Close()
	return "ngrok can be reached at " + t.server, nil
}

// Run implements tunnel.Tunnel.
func (t *Tunnel) Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error {
	return t.retry.Run(ctx, ready, func(ctx context.Context, status *tunnel.Status) error {
		return t.session(ctx, status, serve)
	})
}
