package colabapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/client"
)

const (
	// leastLifetime and mostLifetime bound what is believed about the life of a proxy's token.
	// Others saw about an hour (unverified). This computer's clock may be wrong: then the API is
	// asked every few minutes, or the proxy refuses one request an hour.
	leastLifetime = 5 * time.Minute
	mostLifetime  = 2 * time.Hour
	// renewEvery is how old a refused token must be to be renewed: a proxy refuses all of them if
	// the VM's executor has ended, and the API has a quota.
	renewEvery = 15 * time.Second
)

// expiring keeps a value with a token in memory, and only there. Many callers with an expired
// token cause one renewal.
type expiring[T comparable] struct {
	turn chan struct{} // contains one element while a call reads or renews what follows

	// Only the owner of turn changes these.
	value T
	until time.Time // when to renew it, before it is refused
	asked time.Time // for the last one
}

func newExpiring[T comparable]() *expiring[T] { return &expiring[T]{turn: make(chan struct{}, 1)} }

// get returns a value that differs from the refused one, unless that is only seconds old.
func (e *expiring[T]) get(ctx context.Context, refused T, renew func(context.Context) (T, time.Time, error)) (T, error) {
	var none T
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	now := time.Now()
	known := e.value != none && e.value != refused
	if known && now.Before(e.until) || e.value != none && !known && now.Sub(e.asked) <= renewEvery {
		return e.value, nil
	}
	e.asked = now
	fresh, until, err := renew(ctx)
	switch {
	case err == nil:
		e.value, e.until = fresh, until
	case known && !gone(err): // the old one may still work
	default:
		return none, err
	}
	return e.value, nil
}

// jupyterPort is the port of Colab's Jupyter server, with which a VM's address begins.
const jupyterPort = "8080"

// address is where a VM's proxy is, with the token that it wants. The host follows the number of
// a port: https://8000-NAME for https://8080-NAME. That this works is unverified; an executor's
// signed answer proves it.
type address struct{ host, token string }

// address returns where a VM's proxy is, with another token than the refused one.
func (b *Backend) address(ctx context.Context, id string, refused address) (address, error) {
	b.mu.Lock()
	known := b.addresses[id]
	if known == nil {
		known = newExpiring[address]()
		b.addresses[id] = known
	}
	b.mu.Unlock()
	return known.get(ctx, refused, func(ctx context.Context) (address, time.Time, error) { return b.askAddress(ctx, id) })
}

// askAddress asks the API for a fresh token, and returns when to ask again.
func (b *Backend) askAddress(ctx context.Context, id string) (at address, until time.Time, err error) {
	found, err := b.runtime(ctx, id)
	if err != nil {
		return at, until, err
	}
	if found.Connection == nil || found.Connection.Token == "" {
		return at, until, fmt.Errorf("VM %q is not ready: Google gives no connection for it yet; try again in a minute", id)
	}
	at, err = proxyAddress(found.Connection.URL)
	if at.token = found.Connection.Token; err == nil && !isToken(at.token) {
		err = errors.New("its token has an unknown form")
	}
	if err != nil {
		return at, until, fmt.Errorf("connect to VM %q: %w", id, err)
	}
	life := min(max(time.Until(found.Connection.ExpireTime), leastLifetime), mostLifetime)
	return at, time.Now().Add(life * 4 / 5), nil
}

// tokenHeader carries the token to the proxy, for REST and WebSockets.
const tokenHeader = "X-Colab-Runtime-Proxy-Token"

// Proxy implements vm.Proxied.
func (b *Backend) Proxy(ctx context.Context, id string, port int) (string, error) {
	at, err := b.address(ctx, id, address{})
	if err != nil {
		return "", err
	}
	return "https://" + strconv.Itoa(port) + at.host, nil
}

// Transport implements vm.Proxied.
func (b *Backend) Transport(id string) http.RoundTripper { return &portTransport{b, id} }

// portTransport adds the proxy's token to requests, and renews it. Whatever host a request
// names, it goes to the VM's own proxy, and the token with it. Only the port counts, with which
// the host begins.
type portTransport struct {
	backend *Backend
	id      string
}

// CloseIdleConnections closes the connections of all VMs' transports that are idle.
func (t *portTransport) CloseIdleConnections() { t.backend.Close() }

// RoundTrip implements http.RoundTripper. If the proxy refuses the token, the request is sent
// once more with a new one; a request whose body can't be read twice is not.
func (t *portTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	defer closeBody(req)
	at, err := t.backend.address(req.Context(), t.id, address{})
	if err != nil {
		return nil, t.noToken(err)
	}
	res, err := t.send(req, at)
	if err != nil || !refuses(res) {
		return res, err
	}
	fresh, err := t.backend.address(req.Context(), t.id, at)
	if err != nil {
		discard(res)
		return nil, client.Arrived(t.noToken(err))
	}
	if fresh != at && (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil) {
		discard(res)
		if res, err = t.send(req, fresh); err != nil {
			return nil, client.Arrived(err)
		}
		if !refuses(res) {
			return res, nil
		}
	}
	return t.refused(req, res)
}

// refused is the answer to a request that the proxy refuses with a fresh token too. That does
// not mean that the VM is gone. Jupyter's own answers pass, and those of executors, which
// refuse a wrong secret in JSON.
func (t *portTransport) refused(req *http.Request, res *http.Response) (*http.Response, error) {
	if portOf(req) == jupyterPort || strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		return res, nil
	}
	discard(res)
	return nil, unreached(nil, "Google's proxy does not pass requests on to the executor on VM %q (HTTP %d): the executor or the VM may have ended", t.id, res.StatusCode)
}

// send sends a copy of req, as a RoundTripper must not change its request.
func (t *portTransport) send(req *http.Request, at address) (*http.Response, error) {
	host := portOf(req) + at.host
	if _, err := strconv.ParseUint(portOf(req), 10, 16); err != nil {
		return nil, fmt.Errorf("the VM has no port %q", portOf(req))
	}
	own := req.Clone(req.Context())
	own.URL.Scheme, own.URL.Host, own.Host = "https", host, host
	own.Header.Set(tokenHeader, at.token)
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		own.Body = body
	}
	return t.backend.transport.RoundTrip(own)
}

// portOf returns the port of the VM that a request is for.
func portOf(req *http.Request) string {
	port, _, _ := strings.Cut(req.URL.Host, "-")
	return port
}

// refuses reports whether an answer may be the proxy's refusal of a token. An executor's
// answer is signed.
func refuses(res *http.Response) bool {
	return (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusNotFound) && res.Header.Get("Signature") == ""
}

// noToken returns the error of a request for which Google gives no token.
func (t *portTransport) noToken(err error) error {
	if gone(err) {
		return unreached(err, "VM %q does not exist any more", t.id)
	}
	return unreached(err, "no connection to VM %q through Google's proxy: %v", t.id, err)
}

func unreached(cause error, format string, args ...any) error {
	const hint = "Run `colab-relay vm list` to see which VMs run; `colab-relay vm up` starts another one."
	return &client.RouteError{Message: fmt.Sprintf(format, args...), Hint: hint, Err: cause}
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

// proxyDomains are the domains of the proxies in front of VMs. The older one is unverified
// for this API.
var proxyDomains = []string{".colab.dev", ".colab.googleusercontent.com"}

// proxyAddress reads a VM's address, and refuses one that is not one of Google's proxies: the
// relay sends code and secrets there.
func proxyAddress(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return address{}, errors.New("the VM's address cannot be read")
	}
	domain := func(suffix string) bool { return strings.HasSuffix(u.Host, suffix) } // with a port, none fits
	host, ok := strings.CutPrefix(u.Host, jupyterPort+"-")
	if u.Scheme != "https" || !ok || !slices.ContainsFunc(proxyDomains, domain) {
		return address{}, fmt.Errorf("the VM's address is at %q, which is not that of a proxy of Google's", u.Host[:min(len(u.Host), 100)])
	}
	return address{host: "-" + host}, nil
}
