package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// maxAnswerBytes bounds an answer, both as sent and decompressed: contract.MaxReadBytes of
// events as JSON, or one part of a blob, and a reserve.
const maxAnswerBytes = 16 << 20

// request is the request of one attempt.
type request struct {
	method string
	path   string // contains nothing that needs escaping
	query  url.Values
	body   []byte        // JSON, before compression; nil for none
	part   bool          // body is a part of a file, and is sent uncompressed
	batch  bool          // body is a batch of files
	into   []byte        // buffer for a part of a file; nil for other answers
	wait   time.Duration // how long the executor may wait before it answers
	// instance is the executor that the request is intended for; zero for a GET.
	instance contract.Instance
}

// answer is an answer that an executor signed.
type answer struct {
	body     []byte // decompressed
	instance contract.Instance
	// unverified is how many bytes of request.into are from an interrupted answer: its head
	// was signed, but nothing proves that these bytes are the executor's.
	unverified int
}

// send sends r once and logs the result. A refusal returns the answer and a *contract.Error;
// every other failure is an *Error.
func (c *Client) send(ctx context.Context, r request) (answer, error) {
	started := time.Now()
	got, requestID, err := c.exchange(ctx, r)
	err = c.byProtocol(ctx, err)
	recordAttempt(ctx, err)
	attrs := []any{"method", r.method, "path", r.path, "request_id", requestID, "bytes", len(got.body), "dur", time.Since(started)}
	if err != nil {
		attrs = append(attrs, "err", err.Error())
	}
	c.log.DebugContext(ctx, "sent a request to the executor", attrs...)
	if c.onAttempt != nil && ctx.Err() == nil {
		c.onAttempt(err)
	}
	return got, err
}

func (c *Client) exchange(ctx context.Context, r request) (got answer, requestID string, err error) {
	ctx, timer := startStallTimer(ctx, r.wait+c.timeouts.answer)
	defer timer.stop()
	var sent atomic.Bool
	req, body := c.newRequest(traceSent(ctx, &sent), r, timer)
	signature, err := c.signer.SignRequest(req, body, c.now())
	if err != nil {
		return answer{}, "", problem(KindNotExecutor, "the request could not be signed", err)
	}
	res, raw, err := c.roundTrip(req, timer, r.into)
	if err != nil {
		return answer{unverified: c.prefix(res, raw, r.into, signature)}, "", c.transportError(ctx, err, sent.Load())
	}
	requestID = res.Header.Get(contract.HeaderRequestID)
	if err := c.signer.VerifyResponse(res, raw, signature); err != nil {
		return answer{}, requestID, c.unverified(res, raw, err)
	}
	got, err = c.open(res, raw, r.into)
	return got, requestID, err
}

// traceSent sets sent when the request gets a connection. The transport itself uses another
// connection only if it wrote nothing to the first one, so getting another clears sent.
func traceSent(ctx context.Context, sent *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { sent.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
}

// newRequest returns an unsigned request for r, and the bytes of its body.
func (c *Client) newRequest(ctx context.Context, r request, timer *stallTimer) (*http.Request, []byte) {
	target := c.base
	target.Path, target.RawQuery = r.path, r.query.Encode()
	req := (&http.Request{Method: r.method, URL: &target, Host: target.Host, Header: http.Header{}}).WithContext(ctx)
	req.Header.Set("Accept-Encoding", encodingGzip)
	req.Header.Set(contract.HeaderSkipInterstitial, "1")
	req.Header.Set("User-Agent", "colab-relay")
	if !r.instance.IsZero() {
		req.Header.Set(contract.HeaderInstance, r.instance.String())
	}
	if r.body == nil {
		return req, nil
	}
	body, encoding, kind := r.body, encodingPlain, contentBytes
	if !r.part {
		body, encoding = compress(r.body)
	}
	if !r.part && !r.batch {
		kind = "application/json"
	}
	req.Header.Set("Content-Type", kind)
	if encoding != encodingPlain {
		req.Header.Set("Content-Encoding", encoding)
	}
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) {
		return io.NopCloser(progressReader{bytes.NewReader(body), timer, r.wait + c.timeouts.answer}), nil
	}
	return req, body
}

// roundTrip sends req and reads the answer's body; a part of a file is read into into. It uses
// the transport directly, because http.Client would follow redirects and put the query into
// its errors. With an error it returns the bytes read before it.
func (c *Client) roundTrip(req *http.Request, timer *stallTimer, into []byte) (*http.Response, []byte, error) {
	defer trackBody(req).Wait()
	res, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	timer.progress(c.timeouts.stall)
	from := progressReader{res.Body, timer, c.timeouts.stall}
	if into != nil && isPart(res) {
		n, err := fill(into, from)
		return res, into[:n], err
	}
	body, err := bounded.ReadAll(from, c.maxAnswer)
	return res, body, err
}

// open decodes an answer whose signature is right.
func (c *Client) open(res *http.Response, raw, into []byte) (answer, error) {
	instance, err := contract.ParseInstance(res.Header.Get(contract.HeaderInstance))
	if err != nil {
		return answer{}, unknownForm("the executor's name has an unknown form", err)
	}
	c.instance.Store(&instance)
	got := answer{instance: instance}
	if into != nil && res.StatusCode == http.StatusOK {
		got.body, err = unpackPart(res, raw, into)
	} else {
		got.body, err = decompress(raw, res.Header.Get("Content-Encoding"), c.maxAnswer)
	}
	if err != nil {
		e := problem(KindBadAnswer, "the answer's compression is broken", err)
		if errors.Is(err, bounded.ErrTooLong) {
			e.Message = fmt.Sprintf("the executor's answer is longer than %d MiB", c.maxAnswer>>20)
		}
		e.sent = true
		return got, e
	}
	if res.StatusCode/100 == 2 {
		return got, nil
	}
	var body contract.ErrorBody
	if err := json.Unmarshal(got.body, &body); err != nil || body.Error.Code == "" {
		return got, unknownForm(fmt.Sprintf("the executor's answer has an unknown form (HTTP %d)", res.StatusCode), err)
	}
	clean(&body.Error)
	return got, &body.Error
}

// unknownForm returns the error for an answer that the executor signed but that we can't read.
func unknownForm(message string, err error) *Error {
	e := problem(KindWrongProtocol, message, err)
	e.sent = true
	return e
}
