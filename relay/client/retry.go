package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// maxBadAnswers is how often an answer that was changed on its way is asked for
// again: once may be chance, three times is a proxy.
const maxBadAnswers = 3

// policy says whether a call whose try ended with err is tried again; bad counts the
// answers to it so far that were changed on their way.
type policy func(err error, bad int) bool

// idempotent suits calls that do no harm when they are done twice.
func idempotent(err error, bad int) bool {
	if refused := refusal(err); refused != nil {
		return passing(refused)
	}
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case KindUnreachable, KindNoSuchHost, KindTunnelOffline, KindTunnelError, KindTimeout:
		return true
	case KindBadAnswer:
		return bad < maxBadAnswers && !errors.Is(err, bounded.ErrTooLong) // it would be as long again
	}
	return false
}

// Transient reports whether err, of a call that tries once, may be gone at the next
// try: the way was broken, or the executor asked to wait. An answer that was changed
// on its way is no such error: the next one would be changed as well. Whether the
// caller's own ctx has ended is the caller's to look at.
func Transient(err error) bool { return idempotent(err, maxBadAnswers) }

// ifUnsent suits calls that must not be done twice: again only after a try that
// surely did nothing.
func ifUnsent(err error, bad int) bool {
	return idempotent(err, bad) && !mayHaveArrived(err)
}

// passing reports whether a refusal goes away by itself within moments. Others that
// are retryable (kernel_busy, low_memory) are the caller's to wait for.
func passing(refused *contract.Error) bool {
	switch refused.Code {
	case contract.CodeRateLimited, contract.CodeKernelStarting, contract.CodeQueueFull:
		return true
	case contract.CodeReplayed:
		// The transport sent a GET again by itself on a fresh connection, or a proxy did
		// so, with the nonce it already had.
		return true
	}
	return false
}

// retry calls try until it succeeds, again says no, or ctx ends, with a jittered
// exponential pause between. WithReachLimit says when it gives up earlier.
func (c *Client) retry(ctx context.Context, again policy, try func() (answer, error)) (answer, error) {
	var last error
	bad, sent := 0, false
	delays := c.newRetryDelays(ctx)
	got, err := backoff.Retry(ctx, func() (answer, error) {
		began := time.Now()
		got, err := try()
		delays.took = time.Since(began)
		sent = sent || mayHaveArrived(err)
		var e *Error
		if errors.As(err, &e) && e.Kind == KindBadAnswer {
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
	case err == context.Cause(ctx): // it ended during a pause
		err = ended(ctx, last)
	case delays.over:
		err = delays.unreachable(err)
	}
	return got, everSent(err, sent)
}

// everSent makes an error tell of all tries of its call whether one may have arrived.
func everSent(err error, sent bool) error {
	var e *Error
	if !sent || refusal(err) != nil || !errors.As(err, &e) {
		return err
	}
	told := *e
	told.sent = true
	return &told
}

func newBackOff() backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 200 * time.Millisecond
	b.Multiplier = 2
	b.MaxInterval = 5 * time.Second
	return b
}

// once makes a call of the contract that is tried once.
func (c *Client) once(ctx context.Context, build func() request) (answer, error) {
	j := &attempts{client: c, build: build}
	if err := j.address(ctx); err != nil {
		return answer{}, err
	}
	return j.try(ctx)
}

// call makes a call of the contract and reads its answer as T.
func call[T any](ctx context.Context, c *Client, again policy, build func() request) (T, error) {
	return finish[T](ctx, &attempts{client: c, build: build}, again)
}

// finish tries until again says no, and reads the answer as T.
func finish[T any](ctx context.Context, j *attempts, again policy) (T, error) {
	var result T
	got, err := j.finish(ctx, again)
	if err != nil {
		return result, err
	}
	return result, read(got.body, &result)
}

// finish tries until again says no.
func (j *attempts) finish(ctx context.Context, again policy) (answer, error) {
	if err := j.address(ctx); err != nil {
		return answer{}, err
	}
	return j.client.retry(ctx, again, func() (answer, error) { return j.try(ctx) })
}

// read reads a signed answer, unless it would take more memory than an executor's does.
func read(body []byte, into any) error {
	if err := CheckItems(body, fewerItems); err != nil {
		return breaksBounds("the executor's answer has more items than any executor gives", err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return problem(KindWrongProtocol, "the executor's answer cannot be read", err)
	}
	clean(into)
	return nil
}

// breaksBounds is an answer that the executor signed and that breaks a bound.
func breaksBounds(message string, err error) *Error {
	e := problemWithHint(KindBadAnswer, message, "the answer is the executor's own: update relay and executor to the same release; if that does not help, do not trust this VM", err)
	e.sent = true
	return e
}
