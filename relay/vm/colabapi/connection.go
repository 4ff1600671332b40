package colabapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/client"
)

const (
	// leastLifetime and mostLifetime bound what is believed about the life of a proxy's
	// token. Others saw about an hour (unverified).
	leastLifetime = time.Minute
	mostLifetime  = 2 * time.Hour
	// renewEvery is the shortest time between two renewals after the proxy has refused
	// freeRenewals tokens in a row, as for a VM whose executor has ended: the API has a quota.
	renewEvery   = 15 * time.Second
	freeRenewals = 3
)

// jupyterPort is the port of Colab's Jupyter server, with which a VM's address begins.
const jupyterPort = 8080

// address is where a VM's proxy is, with the token that it wants. It is only in memory.
type address struct {
	base  *url.URL // of the Jupyter server
	token string
}

// ofPort returns the base URL of another port of the VM: https://8000-NAME for
// https://8080-NAME. That this works is unverified; an executor's signed answer proves it.
func (a address) ofPort(port int) (*url.URL, error) {
	rest, ok := strings.CutPrefix(a.base.Host, strconv.Itoa(jupyterPort)+"-")
	if !ok || port < 1 || port > 65535 {
		return nil, fmt.Errorf("the proxy's address %q tells no address of port %d", a.base.Host, port)
	}
	return &url.URL{Scheme: a.base.Scheme, Host: strconv.Itoa(port) + "-" + rest}, nil
}

// connection keeps the address of one VM.
type connection struct {
	turn chan struct{} // contains one element while a call reads or renews what follows

	// Only the owner of turn changes these.
	current  address
	renew    time.Time // when to get a new token before it is refused
	asked    time.Time // when the last one was asked for
	unproven int       // tokens since the last one that the proxy accepted
}

// connectionTo returns the connection of a VM, which may hold no address yet.
func (b *Backend) connectionTo(id string) *connection {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.connections[id]
	if c == nil {
		c = &connection{turn: make(chan struct{}, 1)}
		b.connections[id] = c
	}
	return c
}

// forget drops the token of a VM.
func (b *Backend) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.connections, id)
}

// address returns where a VM's proxy is. The token differs from stale, which the proxy
// refused, unless several were refused and the last one is only seconds old. Many callers
// with an expired token cause one call of the API.
func (b *Backend) address(ctx context.Context, id, stale string) (address, error) {
	c := b.connectionTo(id)
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return address{}, context.Cause(ctx)
	}
	known := c.current.token != ""
	refused := known && c.current.token == stale
	now := time.Now()
	switch {
	case known && !refused && now.Before(c.renew):
		return c.current, nil
	case refused && c.unproven >= freeRenewals && now.Sub(c.asked) < renewEvery:
		return c.current, nil
	}
	c.asked = now
	fresh, renew, err := b.askAddress(ctx, id)
	if err != nil {
		if known && !refused && !gone(err) {
			return c.current, nil // it may still work
		}
		return address{}, err
	}
	c.current, c.renew, c.unproven = fresh, renew, c.unproven+1
	return c.current, nil
}

// accepted notes that the proxy of a VM accepted a token.
func (b *Backend) accepted(ctx context.Context, id, token string) {
	c := b.connectionTo(id)
	select {
	case c.turn <- struct{}{}:
		if c.current.token == token {
			c.unproven = 0
		}
		<-c.turn
	case <-ctx.Done():
	}
}

// askAddress asks the API for a fresh token, and returns when to ask again.
func (b *Backend) askAddress(ctx context.Context, id string) (address, time.Time, error) {
	found, date, err := b.runtime(ctx, id)
	if err != nil {
		return address{}, time.Time{}, err
	}
	if found.Connection == nil || found.Connection.Token == "" {
		return address{}, time.Time{}, fmt.Errorf("VM %q is not ready: Google gives no connection for it yet; try again in a minute", id)
	}
	base, err := b.site.checkProxyURL(found.Connection.URL)
	if err == nil && !isToken(found.Connection.Token) {
		err = errors.New("its token has an unknown form")
	}
	if err != nil {
		return address{}, time.Time{}, fmt.Errorf("connect to VM %q: %w", id, err)
	}
	return address{base, found.Connection.Token}, time.Now().Add(usable(found.Connection.ExpireTime, date)), nil
}

// usable returns how long a token is used: until shortly before its end, by Google's clock,
// because this computer's may be wrong by hours.
func usable(end, date time.Time) time.Duration {
	if date.IsZero() {
		date = time.Now()
	}
	life := min(max(end.Sub(date), leastLifetime), mostLifetime)
	return life - min(life/5, 5*time.Minute)
}

// tokenHeader carries the token to the proxy, for REST and WebSockets.
const tokenHeader = "X-Colab-Runtime-Proxy-Token"

// Proxy implements vm.Proxied.
func (b *Backend) Proxy(ctx context.Context, id string, port int) (string, http.RoundTripper, error) {
	at, err := b.address(ctx, id, "")
	if err != nil {
		return "", nil, err
	}
	base, err := at.ofPort(port)
	if err != nil {
		return "", nil, fmt.Errorf("VM %q: %w", id, err)
	}
	return base.String(), &portTransport{b, id, port}, nil
}

// portTransport adds the proxy's token to requests, and renews it. Whatever host a request
// names, it goes to the VM's own proxy, and the token with it.
type portTransport struct {
	backend *Backend
	id      string
	port    int
}

// CloseIdleConnections closes the connections of all VMs' transports that are idle.
func (t *portTransport) CloseIdleConnections() { t.backend.transport.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper. If the proxy refuses the token, the request is sent
// once more with a new one; a request whose body can't be read twice is not.
func (t *portTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	defer closeBody(req)
	at, err := t.backend.address(req.Context(), t.id, "")
	if err != nil {
		return nil, t.unreached(err)
	}
	res, err := t.send(req, at)
	if err != nil || !refuses(res) {
		return res, err
	}
	fresh, err := t.backend.address(req.Context(), t.id, at.token)
	if err != nil {
		discard(res)
		return nil, client.Arrived(t.unreached(err))
	}
	if fresh.token != at.token && (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil) {
		discard(res)
		if res, err = t.send(req, fresh); err != nil {
			return nil, client.Arrived(err)
		}
		if !refuses(res) {
			return res, nil
		}
	}
	return t.refused(res)
}

// refused is the answer to a request that the proxy refuses with a fresh token too. That does
// not mean that the VM is gone. Jupyter's own answers pass, and those of executors, which
// refuse a wrong secret in JSON.
func (t *portTransport) refused(res *http.Response) (*http.Response, error) {
	if t.port == jupyterPort || strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		return res, nil
	}
	discard(res)
	return nil, &client.RouteError{
		Message: fmt.Sprintf("Google's proxy does not pass requests on to the executor on VM %q (HTTP %d): the executor or the VM may have ended", t.id, res.StatusCode),
		Hint:    listHint,
	}
}

// listHint is the next step when a VM is not reached.
const listHint = "Run `colab-relay vm list` to see which VMs run; `colab-relay vm up` starts another one."

// send sends a copy of req, as a RoundTripper must not change its request.
func (t *portTransport) send(req *http.Request, at address) (*http.Response, error) {
	base, err := at.ofPort(t.port)
	if err != nil {
		return nil, err
	}
	own := req.Clone(req.Context())
	own.URL.Scheme, own.URL.Host, own.Host = base.Scheme, base.Host, base.Host
	own.Header.Set(tokenHeader, at.token)
	if req.GetBody != nil {
		if own.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
	res, err := t.backend.transport.RoundTrip(own)
	if err == nil && !refuses(res) {
		t.backend.accepted(req.Context(), t.id, at.token)
	}
	return res, err
}

// refuses reports whether an answer may be the proxy's refusal of a token. An executor's
// answer is signed.
func refuses(res *http.Response) bool {
	return (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusNotFound) && res.Header.Get("Signature") == ""
}

// unreached returns the error of a request that could not be sent because Google gives no
// token for it.
func (t *portTransport) unreached(err error) error {
	if gone(err) {
		return &client.RouteError{Message: fmt.Sprintf("VM %q does not exist any more", t.id), Hint: listHint, Err: err}
	}
	return &client.RouteError{Message: fmt.Sprintf("no connection to VM %q through Google's proxy: %v", t.id, err), Hint: listHint, Err: err}
}

// discard ends an answer so that its connection can be used again.
func discard(res *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	res.Body.Close()
}

// closeBody closes the body that only its copies were read from.
func closeBody(req *http.Request) {
	if req.Body != nil && req.GetBody != nil {
		req.Body.Close()
	}
}

// site is where Google's services are: Google's own, or a stand-in on this computer.
type site struct {
	test *url.URL // nil for Google's own
}

// siteOf returns Google's own site unless TestVariable names a stand-in.
func siteOf(getenv func(string) string) (site, error) {
	text := getenv(TestVariable)
	if text == "" {
		return site{}, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Port() == "" || !isLoopback(u.Hostname()) {
		return site{}, fmt.Errorf("%s is for tests: it must have the form http://127.0.0.1:PORT; unset it to use Google", TestVariable)
	}
	return site{test: u}, nil
}

// isLoopback reports whether host is an address of this computer, written as a number.
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// isLocalName reports whether host is a name of this computer (RFC 6761).
func isLocalName(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// api returns the base URL of the API.
func (s site) api() string {
	if s.test != nil {
		return s.test.String()
	}
	return "https://colaboratory.googleapis.com"
}

// tokenURL returns where application default credentials get tokens.
func (s site) tokenURL() string {
	if s.test != nil {
		return s.test.String() + "/token"
	}
	return "https://oauth2.googleapis.com/token"
}

// Hosts of Google's that client JSON files name.
var (
	authHosts  = []string{"accounts.google.com"}
	tokenHosts = []string{"oauth2.googleapis.com", "accounts.google.com", "www.googleapis.com"}
)

// checkOAuthURL refuses addresses that are not Google's: the file that names them may come
// from a stranger, who would get the person's login.
func (s site) checkOAuthURL(text string, hosts []string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.User != nil || u.Fragment != "":
		return errors.New("it cannot be read")
	case s.test != nil && u.Scheme == s.test.Scheme && u.Host == s.test.Host:
		return nil
	case u.Scheme != "https" || !slices.Contains(hosts, u.Host):
		return fmt.Errorf("%.100q is not Google's: expected https://%s", u.Host, hosts[0])
	}
	return nil
}

// proxyDomains are the domains of the proxies in front of VMs. The older one is unverified
// for this API.
var proxyDomains = []string{".colab.dev", ".colab.googleusercontent.com"}

// checkProxyURL refuses a VM's address that is not one of Google's proxies: the relay sends
// code and secrets there.
func (s site) checkProxyURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("the VM's address cannot be read")
	}
	domain := func(suffix string) bool { return strings.HasSuffix(u.Host, suffix) } // with a port, none fits
	switch {
	case s.test != nil && u.Scheme == "http" && isLocalName(u.Hostname()):
	case u.Scheme == "https" && slices.ContainsFunc(proxyDomains, domain):
	default:
		return nil, fmt.Errorf("the VM's address is at %q, which is not Google's", u.Host[:min(len(u.Host), 100)])
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func localDial(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(address); err == nil && isLocalName(host) {
			address = net.JoinHostPort("127.0.0.1", port)
		}
		return dial(ctx, network, address)
	}
}
