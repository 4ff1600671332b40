package client

import (
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

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
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
		attrs := []any{"method", r.method, "path", r.path, "request_id", requestID, "bytes", len(got.body), "dur", time.Since(started)}
		if err != nil {
			attrs = append(attrs, "err", err.Error())
		}
		c.log.DebugContext(ctx, "sent a request to the executor", attrs...)
	}
	if c.onAttempt != nil && ctx.Err() == nil {
		c.onAttempt(err)
	}
	return got, err
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
		e = problem(KindBadAnswer, tooMuch, err)
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

// read decodes a signed answer, unless it has more items than an executor may send.
func read(ctx context.Context, body []byte, into any) error {
	if len(body) == 0 {
		return emptyAnswer("the executor's answer is empty")
	}
	switch err := Decode(ctx, body, into); {
	case errors.Is(err, bounded.ErrTooLong):
		return breaksBounds(tooMuch, err)
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return problem(KindWrongProtocol, "the executor's answer cannot be read", err)
	}
	if e, ok := into.(*contract.Execution); ok {
		if err := checkExecution(e); err != nil {
			return err
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
