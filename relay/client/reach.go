package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"colabrelay/shared/memory"
)

// ReachLimit is how long to wait for an executor that has not answered yet. It bounds how
// long the calls under one WithReachLimit retry while none of them has reached an executor.
// Without it a caller waited 45 s and more for an executor that was not running. After a
// connection has worked once, calls retry as long as the caller allows.
const ReachLimit = 10 * time.Second

type reachKey struct{}

// reach is what the calls under one ctx have reached so far.
type reach struct {
	began   time.Time
	tries   atomic.Int32
	reached atomic.Bool // something answered, or a request may have arrived
}

// WithReachLimit returns a ctx whose calls stop retrying after ReachLimit, counted for all of
// them together, if none of them has reached an executor.
func WithReachLimit(ctx context.Context) context.Context {
	return context.WithValue(ctx, reachKey{}, &reach{began: time.Now()})
}

// Patience is how long a transfer that has begun goes on without a byte. It bridges a tunnel that
// reconnects and an executor that is started again. Without it a download from a connection that
// broke each time never ended.
const Patience = time.Minute

type patienceKey struct{}

// WithPatience returns a ctx each of whose calls stops retrying once all its attempts have failed
// for so long. A refusal is no failure: the executor is there.
func WithPatience(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, limit)
}

// Silence measures for how long attempts have failed in a row. Its zero value is ready.
type Silence struct {
	mu    sync.Mutex
	since time.Time // of the first failure in the row; zero for none
}

// Failed notes an attempt that failed, and returns how long they have.
func (s *Silence) Failed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = time.Now()
	}
	return time.Since(s.since)
}

// End notes that something arrived.
func (s *Silence) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

// recordAttempt records the result of an attempt.
func recordAttempt(ctx context.Context, method string, err error) {
	if seen, found := ctx.Value(reachKey{}).(*reach); found {
		seen.tries.Add(1)
		if page := method == http.MethodGet && kindOf(err) == KindIntercepted; !page && !absent(err) {
			seen.reached.Store(true)
		}
	}
}

// absent reports whether an attempt found no executor: no connection could be made, or the
// tunnel's service said that no executor is online. It is false if the request may have
// arrived, because then the caller must retry until it knows.
func absent(err error) bool {
	return neverSent(err) || refusal(err) == nil && kindOf(err) == KindTunnelOffline
}

// answerTime is how much of a call's time is kept for the answer to its last attempt, at most.
const answerTime = 3 * time.Second

// retryDelays are the delays between the attempts of one call. They end in time for
// ReachLimit while no executor was reached, assuming that the next attempt takes as long as
// the last one. After a refusal that is the outcome of its attempt they end when the answer to
// another one might arrive too late: then the outcome stays known.
type retryDelays struct {
	backoff.BackOff
	seen    *reach // nil if the call retries as long as its ctx lasts
	limit   time.Duration
	began   time.Time
	end     time.Time     // of the call's time; zero for none
	took    time.Duration // by the last attempt
	refused bool          // the last attempt, which did nothing
	over    bool

	patience time.Duration // see WithPatience; zero for none
	failing  Silence       // of the call's attempts
	silent   time.Duration // how long they have failed; zero after a refusal
}

// note notes the outcome of an attempt, which took so long.
func (d *retryDelays) note(took time.Duration, err error) {
	d.took, d.refused = took, refusal(err) != nil && !MayHaveArrived(err)
	if d.silent = 0; refusal(err) != nil {
		d.failing.End()
	} else if err != nil {
		d.silent = max(d.failing.Failed(), 1)
	}
}

func (d *retryDelays) NextBackOff() time.Duration {
	next := d.BackOff.NextBackOff()
	if d.refused && !d.end.IsZero() && time.Until(d.end)-next < min(answerTime, time.Since(d.began)/10) {
		return backoff.Stop
	}
	if d.patience > 0 && d.silent > 0 {
		if d.silent >= d.patience {
			return backoff.Stop
		}
		next = min(next, d.patience-d.silent)
	}
	if d.seen == nil || d.seen.reached.Load() {
		return next
	}
	left := d.limit - time.Since(d.seen.began) - d.took
	if d.over = left <= 0; d.over {
		return backoff.Stop
	}
	return min(next, left)
}

// unreachable is the last error of a call that reached no executor, with what was tried.
func (d *retryDelays) unreachable(last error) error {
	e, ok := errors.AsType[*Error](last)
	if !ok {
		return last
	}
	fresh := *e
	fresh.Message = fmt.Sprintf("%s; no executor answered in %d attempts and %.0f s", e.Message, d.seen.tries.Load(), time.Since(d.seen.began).Seconds())
	fresh.Err = last
	return &fresh
}

// neverSent reports whether none of the attempts of a call that ended with err can have reached
// an executor.
func neverSent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && refusal(err) == nil && !e.sent && (e.Kind == KindUnreachable || e.Kind == KindNoSuchHost)
}

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

// Large answers wait for their turns (package memory). These functions keep the turns until the
// answer is decoded, which takes several times the memory of its text.

// held is call that keeps the turns.
func held[T any](ctx context.Context, c *Client, again policy, build func() request) (T, error) {
	ctx, done := memory.Hold(ctx)
	defer done()
	return call[T](ctx, c, again, build)
}

// finishHeld is finish that keeps the turns.
func finishHeld[T any](ctx context.Context, a *attempts, again policy) (T, error) {
	ctx, done := memory.Hold(ctx)
	defer done()
	return finish[T](ctx, a, again)
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
