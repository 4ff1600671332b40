package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// NewTransport returns the default transport. It keeps connections open, so that a call minutes
// after the last one costs one
// round trip. The comment of each setting names the failure seen without it.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{
		// A laptop that moved to another network hung in connect for minutes.
		Timeout: 10 * time.Second,
		// A router that forgot the connection dropped the next request: probes detect that
		// within 30 s, while no call waits.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment, // offices
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		// Ten concurrent agents opened and closed a connection for each call.
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     5 * time.Minute,
		// A sealed body cannot be compressed, and an answer that is must not pass for one.
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		MaxResponseHeaderBytes: 64 << 10,
		// Of a proxy that refuses, net/http's own error names neither address nor number.
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, res *http.Response) error {
			if res.StatusCode == http.StatusOK {
				return nil
			}
			return &proxyRefusal{proxyAddress(proxy), res.StatusCode}
		},
	}
}

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

// Proxy returns the address of the proxy that calls to base use; empty for none.
func Proxy(base string) string {
	req, err := http.NewRequest(http.MethodGet, base, nil)
	if err != nil {
		return ""
	}
	proxy, err := http.ProxyFromEnvironment(req)
	if err != nil || proxy == nil {
		return ""
	}
	return proxyAddress(proxy)
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

// ErrUpgrade is the error of an answer that switches to another protocol. No request asks for
// that.
var ErrUpgrade = errors.New("the answer switches to another protocol (HTTP 101)")

// EndingWithContext returns a transport whose answers end with their request's context, and
// which refuses an answer that switches to another protocol. Of such an answer, net/http hands
// over the connection as the body and forgets the context: a read of it waited for ever.
func EndingWithContext(t http.RoundTripper) http.RoundTripper { return ending{t} }

type ending struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t ending) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		_ = res.Body.Close()
		return nil, ErrUpgrade
	}
	body := res.Body
	stop := context.AfterFunc(req.Context(), func() { _ = body.Close() })
	res.Body = endingBody{body, stop}
	return res, nil
}

// CloseIdleConnections closes those of the inner transport.
func (t ending) CloseIdleConnections() {
	if inner, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		inner.CloseIdleConnections()
	}
}

// endingBody is closed by its reader, or by the end of its request's context.
type endingBody struct {
	io.ReadCloser
	stop func() bool
}

func (b endingBody) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}

// errStalled is the cause of an attempt that the stall timer ended.
var errStalled = errors.New("no progress")

// stallTimer ends an attempt that makes no progress. A fixed limit for the whole attempt would
// interrupt a big body on a slow connection, which is not an error.
type stallTimer struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func startStallTimer(ctx context.Context, first time.Duration) (context.Context, *stallTimer) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &stallTimer{timer: time.AfterFunc(first, func() { cancel(errStalled) }), cancel: cancel}
}

// progress restarts the timer with span.
func (t *stallTimer) progress(span time.Duration) { t.timer.Reset(span) }

// stop must be called at the end of the attempt.
func (t *stallTimer) stop() {
	t.timer.Stop()
	t.cancel(context.Canceled)
}

// progressReader restarts the stall timer whenever something is read.
type progressReader struct {
	io.Reader
	timer *stallTimer
	span  time.Duration
}

func (r progressReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.timer.progress(r.span)
	}
	return n, err
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

// releaseTime bounds the download of a release's file of at most limit bytes: 30 seconds, and
// what the bytes take at 2 Mbit/s.
func releaseTime(limit int64) time.Duration {
	return 30*time.Second + time.Duration(limit/(256<<10))*time.Second
}

// maxRedirects bounds the redirects of a release's host: GitHub redirects to a separate store.
const maxRedirects = 5

// ReleaseFile fetches a file of a release, at most limit bytes. The server is not an
// executor: nothing is signed and no secret is involved, so it follows redirects, but never
// from https to http.
func ReleaseFile(ctx context.Context, url string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTime(limit))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch %q: the URL cannot be parsed", url)
	}
	req.Header.Set("User-Agent", "colab-relay")
	transport := NewTransport()
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: EndingWithContext(transport), CheckRedirect: onward}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch %q: HTTP %s", url, res.Status)
	}
	text, err := bounded.ReadAll(res.Body, limit)
	if err != nil {
		return nil, fmt.Errorf("fetch %q: %w", url, err)
	}
	return text, nil
}

func onward(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return errors.New("too many redirects")
	case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
		return errors.New("a redirect leads from https to http")
	}
	return nil
}
