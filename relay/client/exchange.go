package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
	"colabrelay/shared/memory"
	"colabrelay/shared/seal"
)

// maxAnswerBytes bounds an answer, both as sent and opened: contract.MaxReadBytes of
// events as JSON, or one part of a blob, and a reserve.
const maxAnswerBytes = 16 << 20

// request is the request of one attempt.
type request struct {
	method string
	path   string // contains nothing that needs escaping
	query  url.Values
	body   []byte        // a message; nil for none
	part   *outgoingPart // a part of a file as the body
	into   *incomingPart // where a part of a file goes; nil for other answers
	wait   time.Duration // how long the executor may wait before it answers
	// instance is the executor that the request is intended for; zero for a GET.
	instance contract.Instance
}

// answer is an answer that an executor signed.
type answer struct {
	body     []byte // empty if it is a part of a file
	instance contract.Instance
}

// send sends r once and logs the result. A refusal returns the answer and a *contract.Error;
// every other failure is an *Error.
func (c *Client) send(ctx context.Context, r request) (answer, error) {
	started := time.Now()
	got, requestID, err := c.exchange(ctx, r)
	c.noteWait(r, time.Since(started), err)
	err = c.byProtocol(ctx, err)
	if e, ok := errors.AsType[*Error](err); ok {
		e.get = r.method == http.MethodGet
	}
	recordAttempt(ctx, r.method, err)
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.logAttempt(ctx, r, requestID, len(got.body), time.Since(started), err)
	}
	if c.onAttempt != nil && ctx.Err() == nil {
		c.onAttempt(err)
	}
	return got, err
}

func (c *Client) logAttempt(ctx context.Context, r request, requestID string, bytes int, dur time.Duration, err error) {
	attrs := []any{"method", r.method, "path", r.path, "request_id", requestID, "bytes", bytes, "dur", dur}
	if err != nil {
		attrs = append(attrs, "err", err.Error())
	}
	c.log.DebugContext(ctx, "sent a request to the executor", attrs...)
}

func (c *Client) exchange(ctx context.Context, r request) (got answer, requestID string, err error) {
	ctx, timer := startStallTimer(ctx, r.wait+c.timeouts.answer)
	defer timer.stop()
	var sent atomic.Bool
	x := c.signer.NewExchange()
	req := c.newRequest(traceSent(ctx, &sent), r)
	sealRequest(x, req, r, timer, r.wait+c.timeouts.answer)
	if err := x.SignRequest(req, c.now()); err != nil {
		return answer{}, "", problem(KindNotExecutor, "the request could not be signed", err)
	}
	// The transport is used directly, because http.Client would follow redirects and put the
	// query into its errors.
	res, err := c.transport.RoundTrip(req)
	if err != nil {
		return answer{}, "", c.transportError(ctx, err, sent.Load())
	}
	defer res.Body.Close()
	res.Request = req
	timer.progress(c.timeouts.stall)
	body := progressReader{res.Body, timer, c.timeouts.stall}
	requestID = res.Header.Get(contract.HeaderRequestID)
	if err := x.VerifyAnswer(res); err != nil {
		return answer{}, requestID, c.unsigned(ctx, res, body, err)
	}
	got, err = c.open(ctx, x, res, body, r.into)
	return got, requestID, err
}

// unsigned returns the error for an answer that no executor signed, of which only the
// beginning is read.
func (c *Client) unsigned(ctx context.Context, res *http.Response, body io.Reader, cause error) *Error {
	page, err := io.ReadAll(io.LimitReader(body, maxErrorPage))
	if err != nil {
		return c.transportError(ctx, err, true)
	}
	return c.unverified(res, page, cause)
}

// traceSent sets sent when the request gets a connection. With HTTP/1, the transport itself uses
// another connection only if it wrote nothing to the first one, so getting another clears sent. With
// HTTP/2, it also does so after the whole request was sent, if the other side says that it did not
// handle it; whoever is on the way may say so and have passed it on.
func traceSent(ctx context.Context, sent *atomic.Bool) context.Context {
	var http2 atomic.Bool
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { sent.Store(http2.Load()) },
		GotConn: func(got httptrace.GotConnInfo) {
			sent.Store(true)
			if c, ok := got.Conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
				http2.Store(true)
			}
		},
	})
}

// newRequest returns a request for r without query, body and signature.
func (c *Client) newRequest(ctx context.Context, r request) *http.Request {
	target := c.base
	target.Path = r.path
	req := (&http.Request{Method: r.method, URL: &target, Host: target.Host, Header: http.Header{}}).WithContext(ctx)
	req.Header[contract.HeaderSkipInterstitial] = []string{"1"}
	req.Header["User-Agent"] = []string{"colab-relay"}
	if !r.instance.IsZero() {
		req.Header[contract.HeaderInstance] = []string{r.instance.String()}
	}
	return req
}

// smallBody is the size of a body that is sent at once, in one packet with the headers if it
// fits: net/http does so only if the body is a plain reader of memory.
const smallBody = 16 << 10

// sealRequest adds query and body of r to req. Whenever a piece of a larger body is sent, the
// timer starts again with span.
func sealRequest(x *auth.Exchange, req *http.Request, r request, timer *stallTimer, span time.Duration) {
	line.SetQuery(x, req, r.query.Encode())
	switch {
	case r.part != nil:
		line.SetPart(x, req, r.part.Length, r.part.open)
	case r.body != nil:
		line.SetMessage(x, req, r.body)
	}
	if req.ContentLength <= smallBody {
		return
	}
	open := req.GetBody
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := open()
		return io.NopCloser(progressReader{body, timer, span}), err
	}
	req.Body, _ = req.GetBody() // it never fails
}

// open opens an answer whose signature is right.
func (c *Client) open(ctx context.Context, x *auth.Exchange, res *http.Response, body io.Reader, into *incomingPart) (got answer, err error) {
	instance, err := contract.ParseInstance(res.Header.Get(contract.HeaderInstance))
	if err != nil {
		return answer{}, unknownForm("the executor's name has an unknown form", err)
	}
	c.instance.Store(&instance)
	got = answer{instance: instance}
	if into != nil && res.StatusCode == http.StatusOK {
		err := into.receive(x, res, body)
		if into.failed != nil {
			return got, nil // the executor answered; the caller reports its own error
		}
		return got, c.bodyError(ctx, res, err)
	}
	if got.body, err = line.OpenAnswer(x, res, body, c.maxAnswer); err != nil {
		return got, c.bodyError(ctx, res, err)
	}
	if res.StatusCode/100 == 2 {
		return got, nil
	}
	var refused contract.ErrorBody
	switch err := json.Unmarshal(got.body, &refused); {
	case len(got.body) == 0:
		return got, emptyAnswer(fmt.Sprintf("the executor's answer is empty (HTTP %d)", res.StatusCode))
	case err != nil || refused.Error.Code == "":
		return got, unknownForm(fmt.Sprintf("the executor's answer has an unknown form (HTTP %d)", res.StatusCode), err)
	}
	clean(&refused.Error)
	return got, &refused.Error
}

// bodyError returns the error for a body that could not be read or opened. Its head was
// signed, so the executor has received the request.
func (c *Client) bodyError(ctx context.Context, res *http.Response, err error) error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return err
	case errors.Is(err, bounded.ErrTooLong):
		e = problem(KindBadAnswer, fmt.Sprintf("the executor's answer is longer than %d MiB", c.maxAnswer>>20), err)
	case errors.Is(err, seal.ErrCut) && res.ContentLength < 0: // a proxy lost the rest, and does not say so
		return c.transportError(ctx, err, true)
	case line.Unopened(err):
		e = problem(KindBadAnswer, "the executor's answer was changed in transit", err)
	default:
		return c.transportError(ctx, err, true)
	}
	e.sent = true
	return e
}

// emptyAnswer returns the error for an answer that the executor signed but that says nothing.
func emptyAnswer(message string) *Error {
	e := problemWithHint(KindBadAnswer, message, "The answer is the executor's own: try again. If the error persists, update relay and executor to the same release and start the executor again.", nil)
	e.sent = true
	return e
}

// unknownForm returns the error for an answer that the executor signed but that we can't read.
func unknownForm(message string, err error) *Error {
	e := problem(KindWrongProtocol, message, err)
	e.sent = true
	return e
}

// attempts is one call in progress, which makes one attempt or several. It is used for one
// call, by one goroutine.
//
// Every request except GET names the executor that it is intended for. That is the executor
// of the call's first attempt, because an answer that the client gets in another call may come
// from another VM. A signed refusal that names the executor's current start or time proves
// that this attempt did nothing and says what was wrong with it; the call then signs once more
// immediately.
type attempts struct {
	client *Client
	build  func() request // the request of one attempt, without the instance
	// moves allows the call to continue with another instance, but only while no attempt may
	// have been accepted, because the old VM may have executed it.
	moves bool
	// pinned, unless empty, is the only instance that the call is intended for.
	pinned string

	instance contract.Instance // that a call other than GET is intended for
	arrived  bool              // an attempt was accepted, or may have been
	answered contract.Instance // that sent the last signed answer; zero before
}

// attempt makes one attempt, and one more for each error that a refusal corrects.
func (a *attempts) attempt(ctx context.Context) (answer, error) {
	corrected := map[contract.Code]bool{}
	for {
		got, err := a.once(ctx)
		if !got.instance.IsZero() {
			a.answered = got.instance
		}
		refused := refusal(err)
		if refused == nil || !a.correct(got, refused) || corrected[refused.Code] {
			a.arrived = a.arrived || err == nil || MayHaveArrived(err)
			return got, err
		}
		corrected[refused.Code] = true
	}
}

func (a *attempts) once(ctx context.Context) (answer, error) {
	r := a.build()
	if r.method != http.MethodGet {
		r.instance = a.instance
	}
	return a.client.send(ctx, r)
}

// address determines, before the first attempt, the executor that the call is intended for. If
// none is known yet it requests one, unless the call is a GET. The start of a pinned instance
// may be unknown; the refusal contains it.
func (a *attempts) address(ctx context.Context) (err error) {
	a.instance = a.client.current()
	if a.instance.IsZero() && a.build().method != http.MethodGet {
		if a.instance, err = a.client.firstInstance(ctx); err != nil {
			return err
		}
	}
	if a.pinned != "" {
		a.instance.ID = a.pinned
	}
	return nil
}

// correct applies what a signed refusal says about the executor's time, start and instance,
// and reports whether the call may be retried immediately.
//
// Every call may follow a new start, including those that must not be executed twice: they are
// not retried after an attempt that may have been accepted, so no earlier attempt was. If
// something in between sent one attempt twice, and the first copy reached the earlier start,
// then the kernel and the execution that input, interrupt, restart and cleanup name ended with
// that start; and the new start recognises a submit by its request_id and an upload by its
// file.
func (a *attempts) correct(got answer, refused *contract.Error) bool {
	if refused.ServerTime > 0 {
		a.client.setClock(time.Unix(refused.ServerTime, 0))
	}
	newStart := got.instance.ID == a.instance.ID && got.instance.Start != a.instance.Start
	if newStart { // rate_limited contains it too, when the executor states no other cause
		a.instance = got.instance
	}
	switch refused.Code {
	case contract.CodeClockSkew:
		return refused.ServerTime > 0
	case contract.CodeNewStart:
		return newStart
	case contract.CodeNewInstance:
		if !a.moves || a.arrived || a.pinned != "" {
			return false
		}
		a.instance = got.instance
		return true
	}
	return false
}

// firstInstance returns the executor that answered last; before the first answer, it sends a
// request. Only one caller does so at a time.
func (c *Client) firstInstance(ctx context.Context) (contract.Instance, error) {
	if known := c.current(); !known.IsZero() {
		return known, nil
	}
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return contract.Instance{}, ended(ctx, nil)
	}
	if known := c.current(); !known.IsZero() {
		return known, nil
	}
	_, err := c.Kernel(ctx)
	if known := c.current(); !known.IsZero() { // a refusal contains it too
		return known, nil
	}
	return contract.Instance{}, err
}

// maxBadAnswers is how many changed answers a call accepts before it stops retrying: one may
// be chance, three are a proxy.
const maxBadAnswers = 3

// policy decides whether a call is retried after an attempt that ended with err; bad counts
// the call's answers that were changed in transit.
type policy func(err error, bad int) bool

// idempotent is the policy for calls that may be executed twice.
func idempotent(err error, bad int) bool {
	if refused := refusal(err); refused != nil {
		return passing(refused)
	}
	switch kindOf(err) {
	case KindUnreachable, KindNoSuchHost, KindTunnelOffline, KindTunnelError, KindIntercepted, KindTimeout:
		return true
	case KindBadAnswer:
		return bad < maxBadAnswers && !errors.Is(err, bounded.ErrTooLong) // the next answer would be as long
	}
	return false
}

// Transient reports whether a call that makes one attempt may succeed if it is repeated after
// err: the connection broke, or the executor asked to wait. An answer that was changed in
// transit is not transient, because the next one would be changed too. The caller must check
// itself whether its ctx has ended.
func Transient(err error) bool { return idempotent(err, maxBadAnswers) }

// ifUnsent is the policy for calls that must not be executed twice: they are retried only
// after an attempt that certainly did nothing.
func ifUnsent(err error, bad int) bool {
	return idempotent(err, bad) && !MayHaveArrived(err)
}

// passing reports whether a refusal usually ends within moments. The caller must wait for
// other retryable ones (kernel_busy, low_memory).
func passing(refused *contract.Error) bool {
	switch refused.Code {
	case contract.CodeRateLimited, contract.CodeKernelStarting, contract.CodeQueueFull,
		contract.CodeReplayed: // the transport or a proxy sent a GET twice, with the same nonce
		return true
	}
	return false
}

// retry calls attempt until it succeeds, the policy again says no, or ctx ends, with jittered
// exponential delays (retryDelays) in between. WithReachLimit may end it earlier. There is no number
// of attempts.
func (c *Client) retry(ctx context.Context, again policy, attempt func() (answer, error)) (answer, error) {
	var last error
	bad, sent := 0, false
	seen, _ := ctx.Value(reachKey{}).(*reach)
	delays := &retryDelays{BackOff: NewBackOff(), seen: seen, began: time.Now()}
	delays.end, _ = ctx.Deadline()
	delays.patience, _ = ctx.Value(patienceKey{}).(time.Duration)
	got, err := backoff.Retry(ctx, func() (answer, error) {
		began := time.Now()
		got, err := attempt()
		delays.note(time.Since(began), err)
		sent = sent || MayHaveArrived(err)
		if kindOf(err) == KindBadAnswer {
			bad++
		}
		switch {
		case err == nil:
			return got, nil
		case ctx.Err() != nil && refusal(err) == nil:
			return got, backoff.Permanent(ended(ctx, cmp.Or(last, err)))
		case !again(err, bad):
			return got, backoff.Permanent(err)
		}
		last = err
		return got, err
	}, backoff.WithBackOff(delays), backoff.WithMaxElapsedTime(0))
	switch {
	case err == nil:
		return got, nil
	case err == context.Cause(ctx): // it ended during a delay
		err = ended(ctx, last)
	case delays.over:
		err = delays.unreachable(err)
	}
	return got, everSent(err, sent)
}

// everSent returns err with sent set if any attempt of the call may have arrived.
func everSent(err error, sent bool) error {
	e, ok := errors.AsType[*Error](err)
	if !sent || refusal(err) != nil || !ok {
		return err
	}
	fresh := *e
	fresh.sent = true
	return &fresh
}

// NewBackOff returns the delays after interruptions: they grow until Reset.
func NewBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 200 * time.Millisecond
	b.Multiplier = 2
	b.MaxInterval = 5 * time.Second
	return b
}

// once makes a single attempt at a call of the contract.
func (c *Client) once(ctx context.Context, build func() request) (answer, error) {
	a := &attempts{client: c, build: build}
	if err := a.address(ctx); err != nil {
		return answer{}, err
	}
	return a.attempt(ctx)
}

// call makes a call of the contract and reads its answer as T. A large answer waits for its turns
// (package memory), and keeps them until it is decoded, which takes several times the memory of
// its text.
func call[T any](ctx context.Context, a *attempts, again policy) (result T, err error) {
	ctx, done := memory.Hold(ctx)
	defer done()
	got, err := a.finish(ctx, again)
	if err != nil {
		return result, err
	}
	return result, read(ctx, got.body, &result)
}

// ask makes a call that may be executed twice, for the executor that answered last.
func ask[T any](ctx context.Context, c *Client, build func() request) (T, error) {
	return call[T](ctx, &attempts{client: c, build: build}, idempotent)
}

// finish makes attempts until the policy says no.
func (a *attempts) finish(ctx context.Context, again policy) (answer, error) {
	if err := a.address(ctx); err != nil {
		return answer{}, err
	}
	return a.client.retry(ctx, again, func() (answer, error) { return a.attempt(ctx) })
}

// read decodes a signed answer, unless it has more items than an executor may send.
func read(ctx context.Context, body []byte, into any) error {
	if len(body) == 0 {
		return emptyAnswer("the executor's answer is empty")
	}
	switch err := decode(ctx, body, into); {
	case errors.Is(err, bounded.ErrTooLong):
		return breaksBounds("the executor's answer "+excess(err, maxAnswerBytes), err)
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return problem(KindWrongProtocol, "the executor's answer cannot be read", err)
	}
	switch v := into.(type) {
	case *contract.Execution:
		if err := checkExecution(v); err != nil {
			return err
		}
	case *contract.Kernel:
		if len(v.KernelID) > contract.MaxKernelIDLen {
			return breaksBounds("the executor's answer has a kernel_id that is too long", nil)
		}
	}
	clean(into)
	return nil
}

// breaksBounds returns the error for an answer that the executor signed but that exceeds a
// bound.
func breaksBounds(message string, err error) *Error {
	e := problemWithHint(KindBadAnswer, message, "The answer is the executor's own: update relay and executor to the same release. If that does not help, do not trust this VM.", err)
	e.sent = true
	return e
}
