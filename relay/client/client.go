// Package client calls one executor according to the contract. It seals and signs every
// request, verifies every answer before reading it, retries what is safe to retry, and
// describes in plain words what is wrong with the connection.
//
// Except for relay/vm/colabapi, which calls Google, it is the only package that makes HTTP
// calls (and ReleaseFile, which fetches a release). It must not log or keep code, output, headers or
// keys, must not parse what an executor has not signed (except /health), and must not follow
// redirects of an executor.
//
// Start reading at calls.go (why code never runs twice), then retry.go (which calls are repeated)
// and exchange.go (one attempt). follow.go reads executions; errors.go says what
// answers that no executor signed mean.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// Config configures a Client.
type Config struct {
	BaseURL   string            // http or https, host and optional port, no path
	Secret    auth.Secret       // shared with the executor
	Log       *slog.Logger      // nil for none; never gets bodies, queries or headers
	Transport http.RoundTripper // nil for the default one
	// OnAttempt, unless nil, is called after each attempt of a call with its error, nil
	// for a success. An attempt that the caller's context ended is not reported. It may
	// be called concurrently.
	OnAttempt func(err error)
	// Comeback is the hint if there is no connection to BaseURL; empty for the usual one.
	Comeback string
	// Recorder, unless nil, is told of all executions that this client submits or reads.
	Recorder Recorder
}

// Client calls one executor. It is safe for concurrent use.
type Client struct {
	base      url.URL
	signer    *auth.Signer
	transport ending
	log       *slog.Logger
	onAttempt func(err error)
	comeback  string
	recorder  Recorder // nil for none
	timeouts  timeouts
	limits    limits
	offset    atomic.Int64 // nanoseconds the executor's clock is ahead of ours
	instance  atomic.Pointer[contract.Instance]
	maxAnswer int64         // maxAnswerBytes, except in tests
	asking    chan struct{} // contains one element while a call requests the first instance
}

// timeouts are how long an attempt may make no progress.
type timeouts struct {
	answer time.Duration // until the first byte of an answer, in addition to the requested wait
	stall  time.Duration // between two pieces of a body, in either direction
}

// New returns a Client. It opens no connection.
func New(cfg Config) (*Client, error) {
	if err := auth.CheckURL(cfg.BaseURL); err != nil {
		return nil, fmt.Errorf("the executor's address: %w", err)
	}
	base, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	if cfg.Secret.IsZero() {
		return nil, errors.New("no secret for the executor")
	}
	c := &Client{
		base:      url.URL{Scheme: base.Scheme, Host: base.Host},
		signer:    auth.NewSigner(cfg.Secret),
		log:       cfg.Log,
		onAttempt: cfg.OnAttempt,
		comeback:  cfg.Comeback,
		recorder:  cfg.Recorder,
		timeouts:  timeouts{answer: 20 * time.Second, stall: 20 * time.Second},
		maxAnswer: maxAnswerBytes,
		asking:    make(chan struct{}, 1),
	}
	c.transport = ending{cfg.Transport}
	if cfg.Transport == nil {
		c.transport = ending{NewTransport()}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.log = c.log.With("component", "client")
	return c, nil
}

// Close closes idle connections. It does not affect calls in progress.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// InstanceID returns the instance_id of the executor that answered last; empty before the
// first signed answer. It changes when a new VM takes over the address.
func (c *Client) InstanceID() string { return c.current().ID }

// current returns the executor that answered last; zero before the first signed answer.
func (c *Client) current() contract.Instance {
	if known := c.instance.Load(); known != nil {
		return *known
	}
	return contract.Instance{}
}

// ClockOffset returns how far the executor's clock is ahead of this computer's; zero while
// they agree within contract.ClockSkew.
func (c *Client) ClockOffset() time.Duration { return time.Duration(c.offset.Load()) }

// now returns the executor's time, as far as it is known.
func (c *Client) now() time.Time { return time.Now().Add(c.ClockOffset()) }

func (c *Client) setClock(server time.Time) { c.offset.Store(int64(time.Until(server))) }

// protocolTime bounds the request for the executor's protocol, which follows a call that has
// failed.
const protocolTime = 5 * time.Second

// byProtocol returns err, or a clearer error if the executor uses another protocol than this
// relay. Such an executor can't check our signature, so it answers as it does to a stranger,
// or signs in a form that we don't know. Only the unsigned /health reveals the protocol;
// nothing else is read from there, and it decides only which words the user reads.
func (c *Client) byProtocol(ctx context.Context, err error) error {
	e, _ := errors.AsType[*Error](err)
	switch kindOf(err) {
	case KindWrongSecret, KindNotExecutor, KindIntercepted, KindWrongProtocol:
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, protocolTime)
	defer cancel()
	_, unhealthy := c.Health(ctx)
	other, ok := errors.AsType[*Error](unhealthy)
	if !ok || other.Kind != KindWrongProtocol {
		return err
	}
	other.sent, other.Err = e.sent, e.Err
	return other
}

// otherProtocol returns the error for an executor that uses another protocol.
func otherProtocol(theirs int) *Error {
	message := fmt.Sprintf("the executor uses protocol %d and this relay protocol %d: the relay on this computer is older", theirs, contract.Protocol)
	hint := "Update the relay on this computer to the executor's release, then start the MCP host again."
	if theirs < contract.Protocol {
		message = fmt.Sprintf("the executor uses protocol %d and this relay protocol %d: the executor on the VM is older", theirs, contract.Protocol)
		hint = "Update the executor to this relay's release (on Colab: run the cell that `colab-relay bootstrap` prints; by SSH: `colab-relay ssh HOST --stop`, then start it again)."
	}
	return problemWithHint(KindWrongProtocol, message, hint, nil)
}

// NewTransport returns the default transport. It keeps connections open, so that a call minutes
// after the last one costs one round trip. The comment of each setting names the failure seen without it.
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
	at, err := url.Parse(base)
	if err != nil {
		return ""
	}
	return proxyFor(http.ProxyFromEnvironment, at)
}

// proxy returns the address of the proxy that calls to this executor use; empty for none.
func (c *Client) proxy() string {
	t, ok := c.transport.RoundTripper.(*http.Transport)
	if !ok || t.Proxy == nil {
		return ""
	}
	return proxyFor(t.Proxy, &c.base)
}

func proxyFor(find func(*http.Request) (*url.URL, error), at *url.URL) string {
	proxy, err := find(&http.Request{URL: at})
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
