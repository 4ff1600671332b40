// Package client calls one executor according to the contract. It seals and signs every
// request, verifies every answer before reading it, retries what is safe to retry, and
// describes in plain words what is wrong with the connection.
//
// Except for relay/vm/colabapi, which calls Google, it is the only package that makes HTTP
// calls (and ReleaseFile, which fetches a release). It must not log or keep code, output, headers or
// keys, must not parse what an executor has not signed (except /health), and must not follow
// redirects of an executor.
//
// Start reading at calls.go (what can be called, and why code never runs twice), then
// exchange.go (one attempt, and which calls are retried) and follow.go (how an execution is read
// to its end). errors.go says what answers that no executor signed mean.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"colabrelay/relay/plain"
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

// Recorder is told of the executions that a Client submits or reads, after the executor's
// answer was verified, cleaned and bounded. It is told nothing of answers that failed.
//
// Its methods may be called concurrently. They must return at once, because a caller waits for
// the answer, and must not change what they get. instanceID is the executor that answered.
// Everything but a Submit comes from the executor: names and numbers may be invented.
type Recorder interface {
	// Submitted reports that the executor accepted s. The answer e has the events from 0 on,
	// as far as they exist. A repeated submit is reported again.
	Submitted(instanceID string, s contract.Submit, e contract.Execution)
	// Answered reports an answer about one execution, with events or without. The answer to
	// a List is not reported.
	Answered(instanceID string, e contract.Execution)
	// Fetched reports the verified bytes of a blob of at most contract.MaxBlobPart.
	Fetched(instanceID, executionID string, blob contract.Blob, content []byte)
}

// execution makes a call that answers with one execution, and reports the answer.
func (c *Client) execution(ctx context.Context, again policy, build func() request) (contract.Execution, error) {
	a := &attempts{client: c, build: build}
	e, err := call[contract.Execution](ctx, a, again)
	if err == nil && c.recorder != nil {
		c.recorder.Answered(a.answered.ID, e)
	}
	return e, err
}

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

type behindInputKey struct{}

// WithBehindInput makes reads of executions return as soon as the execution is queued behind
// one that waits for input, as Submit.BehindInput does for a submit. A caller that goes on
// reading then must use another context, or its reads follow each other without a pause.
func WithBehindInput(ctx context.Context) context.Context {
	return context.WithValue(ctx, behindInputKey{}, true)
}

// BehindInput returns the run that waits for input while e is queued behind it; nil for none.
func BehindInput(e contract.Execution) *contract.Behind {
	return WaitsForInput(Behind(e))
}

// Behind returns the run that has the kernel while e is queued; nil for none.
func Behind(e contract.Execution) *contract.Behind {
	if e.Status != contract.StatusQueued || e.Behind == nil || !validID(e.Behind.ExecutionID) {
		return nil
	}
	return e.Behind
}

// WaitsForInput returns b if that run waits for input and its id is one that an executor may
// have created, so that it can stand in a command; otherwise nil.
func WaitsForInput(b *contract.Behind) *contract.Behind {
	if b == nil || b.Status != contract.StatusWaitingForInput || !validID(b.ExecutionID) {
		return nil
	}
	return b
}

// validID reports whether an executor may have created the id.
func validID(id string) bool {
	return contract.RequestIDPattern().MatchString(id) && strings.Trim(id, ".") != ""
}

// promptLine is a prompt as one plain line. An executor may send more than the contract allows.
func promptLine(s string) string {
	if len(s) > contract.MaxBehindPrompt {
		s = strings.ToValidUTF8(s[:contract.MaxBehindPrompt], "") + "…"
	}
	return plain.Line(s)
}

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
	left := ReachLimit - time.Since(d.seen.began) - d.took
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
