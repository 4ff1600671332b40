package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"colabrelay/shared/contract"
)

// proxyRefusal is the error of a connection that a proxy in this computer's settings does not make.
type proxyRefusal struct {
	proxy  string
	status int
}

func (e *proxyRefusal) Error() string {
	return fmt.Sprintf("the proxy %s answers CONNECT with HTTP %d", e.proxy, e.status)
}

// proxyAddress is a proxy's address without user name and password.
func proxyAddress(proxy *url.URL) string {
	return (&url.URL{Scheme: proxy.Scheme, Host: proxy.Host}).String()
}

// proxy returns the address of the proxy that calls to this executor use; empty for none.
func (c *Client) proxy() string {
	t, ok := c.transport.RoundTripper.(*http.Transport)
	if !ok || t.Proxy == nil {
		return ""
	}
	proxy, err := t.Proxy(&http.Request{URL: &c.base})
	if err != nil || proxy == nil {
		return ""
	}
	return proxyAddress(proxy)
}

// refusedByProxy returns the error for a status with which a proxy in this computer's settings
// answers in place of the host.
func refusedByProxy(proxy string, status int, host string, cause error) *Error {
	const direct = "If this network reaches the host without a proxy, add it to NO_PROXY in the relay's environment."
	switch {
	case status == http.StatusProxyAuthRequired, status == http.StatusUnauthorized: // tinyproxy says 401 of a wrong password
		return problemWithHint(KindProxy, fmt.Sprintf("the proxy %s asks for a user name and a password, or refuses those it got (HTTP %d)", proxy, status),
			"Set HTTPS_PROXY (HTTP_PROXY for an address with http) in the relay's environment to http://USER:PASSWORD@PROXY:PORT. "+direct, cause)
	case status >= 500 || status == http.StatusTooManyRequests:
		return problemWithHint(KindUnreachable, fmt.Sprintf("the proxy %s does not reach %s at this moment (HTTP %d)", proxy, host, status),
			"The executor or the VM may have ended: "+startAgain+" If they run, ask who runs the proxy. "+direct, cause)
	}
	return problemWithHint(KindProxy, fmt.Sprintf("the proxy %s refuses connections to %s (HTTP %d)", proxy, host, status),
		"Ask who runs the proxy to allow this host and port, or start the executor with another --tunnel. "+direct, cause)
}

// leastBody is the size below which requests are not made smaller: any proxy accepts it.
const leastBody = 256 << 10

// limits are those of proxies in front of an executor, as far as its client has met them.
type limits struct {
	body  atomic.Int64 // bytes of a request; 0 for none known
	wait  atomic.Int64 // nanoseconds until an answer; 0 for none known
	ended atomic.Int64 // nanoseconds after which the last attempt was cut off
}

// lower sets a limit unless a lower one is known.
func lower(limit *atomic.Int64, to int64) {
	for known := limit.Load(); known == 0 || to < known; known = limit.Load() {
		if limit.CompareAndSwap(known, to) {
			return
		}
	}
}

// MostBody is how many bytes the body of a request to this executor should have at most: half of
// what a proxy has refused.
func (c *Client) MostBody() int64 { return cmp.Or(c.limits.body.Load(), contract.MaxBodyBytes) }

// tooLarge returns the error for a request of which a proxy refused the size, and remembers that.
func (c *Client) tooLarge(size int64) *Error {
	e := problem(KindTooLarge, fmt.Sprintf("a proxy at %s refuses a request of %d bytes as too large (HTTP %d)", c.base.Host, size, http.StatusRequestEntityTooLarge), nil)
	if e.shrinks = size > leastBody+leastBody/8; e.shrinks { // a sealed body is a little longer than its text
		lower(&c.limits.body, max(size/2, leastBody))
	}
	return e
}

// Shrinks reports whether a call ended with err because a proxy refused the size of its request,
// and one of at most MostBody may pass.
func Shrinks(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.shrinks
}

// leastPoll is the shortest wait that a proxy's patience reduces long polls to. An attempt that was
// cut off sooner says nothing about that.
const leastPoll = 5 * time.Second

// noteWait shortens the waits for answers if a proxy has given up waiting for one, or has cut the
// connection twice after the same time, within a tenth.
func (c *Client) noteWait(r request, took time.Duration, err error) {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.sent || took < leastPoll || r.part != nil || r.into != nil || e.Kind != KindUnreachable && !e.gaveUp {
		return
	}
	before := time.Duration(c.limits.ended.Swap(int64(took)))
	if e.gaveUp || (took-before).Abs() <= took/10 {
		lower(&c.limits.wait, int64(max(took/2, leastPoll)))
	}
}
