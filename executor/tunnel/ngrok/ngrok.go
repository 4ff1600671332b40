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
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
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

// ReportsVisitor implements tunnel.Tunnel.
func (*Tunnel) ReportsVisitor() bool { return true }

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

// explanation is what a code of ngrok means for a person.
type explanation struct {
	temporary bool // it may pass within minutes; others last until a person acts
	text      string
}

// explanations holds the codes that people meet, from ngrok's error reference.
var explanations = map[string]explanation{
	"ERR_NGROK_105":  {false, "NGROK_AUTHTOKEN does not look like an ngrok authtoken: copy it again from https://dashboard.ngrok.com/get-started/your-authtoken"},
	"ERR_NGROK_107":  {false, "NGROK_AUTHTOKEN was reset or revoked: copy the current one from https://dashboard.ngrok.com/get-started/your-authtoken"},
	"ERR_NGROK_108":  {true, "the account has reached its limit of online agents: stop one at https://dashboard.ngrok.com/agents"},
	"ERR_NGROK_120":  {false, "this executor's ngrok agent is too old for ngrok: use a newer release of colab-relay"},
	"ERR_NGROK_121":  {false, "this executor's ngrok agent is too old for ngrok: use a newer release of colab-relay"},
	"ERR_NGROK_319":  {false, "the domain is not reserved for this account: use the one at https://dashboard.ngrok.com/domains or none"},
	"ERR_NGROK_320":  {false, "the domain is reserved for another account: use the one at https://dashboard.ngrok.com/domains or none"},
	"ERR_NGROK_334":  {true, "the address is still online from another machine: stop it at https://dashboard.ngrok.com/endpoints"},
	"ERR_NGROK_725":  {false, "the account has used up its traffic for this month: wait, upgrade, or use another tunnel"},
	"ERR_NGROK_727":  {false, "the account has used up its requests for this month: wait, upgrade, or use another tunnel"},
	"ERR_NGROK_734":  {true, "the account makes too many requests per minute"},
	"ERR_NGROK_4018": {false, "ngrok requires a verified account and its authtoken: set NGROK_AUTHTOKEN from https://dashboard.ngrok.com/get-started/your-authtoken"},
	"ERR_NGROK_9040": {false, "ngrok does not accept agents from this machine's IP address: use another machine or another tunnel"},
}

var codePattern = regexp.MustCompile(`ERR_NGROK_\d{1,5}`)

// codeOf returns ngrok's code in an error, or "". The SDK types what Listen and
// Accept return; errors from reconnecting are plain text that holds the code on
// a separate line.
func codeOf(err error) string {
	var typed sdk.Error
	if errors.As(err, &typed) && codePattern.MatchString(typed.Code()) {
		return typed.Code()
	}
	if err == nil {
		return ""
	}
	return codePattern.FindString(err.Error())
}

// refusal returns what ngrok refused, or nil for an error without a code, such
// as a network fault. Codes that are not in the table are judged by their range:
// 1xx is about the account and its token and 3xx about the requested address,
// and both are final.
func refusal(err error) *tunnel.Refused {
	code := codeOf(err)
	if code == "" {
		return nil
	}
	e, ok := explanations[code]
	if !ok {
		number := strings.TrimPrefix(code, "ERR_NGROK_")
		e.temporary = len(number) != 3 || number[0] != '1' && number[0] != '3'
		e.text = "see https://ngrok.com/docs/errors/" + strings.ToLower(code)
	}
	return &tunnel.Refused{By: "ngrok", Code: code, Explanation: e.text, Temporary: e.temporary}
}

// maxProxyAnswer bounds what is read of a proxy's answer to CONNECT, in bytes.
const maxProxyAnswer = 64 << 10

// dialer connects to ngrok, by CONNECT if there is a proxy. The SDK itself knows SOCKS only.
type dialer struct {
	net.Dialer
	proxy *url.URL // http or https; nil for none
}

// addProxy makes the tunnel go through the proxy that find names for ngrok's address.
func (t *Tunnel) addProxy(find func(*http.Request) (*url.URL, error)) error {
	if find == nil {
		return nil
	}
	proxy, err := find(&http.Request{URL: &url.URL{Scheme: "https", Host: t.server}})
	if proxy != nil && proxy.Scheme != "http" && proxy.Scheme != "https" {
		t.options = append(t.options, sdk.WithProxyURL(proxy.String()))
		return err
	}
	t.dialer.proxy = proxy
	return err
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.proxy == nil {
		return d.Dialer.DialContext(ctx, network, address)
	}
	at := net.JoinHostPort(d.proxy.Hostname(), cmp.Or(d.proxy.Port(), d.proxy.Scheme))
	conn, err := d.Dialer.DialContext(ctx, network, at)
	if err != nil {
		return nil, fmt.Errorf("the proxy %s: %v", at, err)
	}
	if d.proxy.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: d.proxy.Hostname()})
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := d.connect(conn, address); err != nil {
		conn.Close()
		return nil, fmt.Errorf("the proxy %s: %v", at, err)
	}
	return conn, nil
}

// connect asks the proxy for a connection to address. ngrok waits for the agent to speak
// first, so nothing of it is lost in the reader.
func (d *dialer) connect(conn net.Conn, address string) error {
	conn.SetDeadline(time.Now().Add(d.Timeout))
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user := d.proxy.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
		req.Header = http.Header{"Proxy-Authorization": req.Header["Authorization"]}
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxProxyAnswer)), req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answered %q to CONNECT %s", resp.Status, address)
	}
	return conn.SetDeadline(time.Time{})
}
