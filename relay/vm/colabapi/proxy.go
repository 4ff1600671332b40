package colabapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"colabrelay/relay/client"
)

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
