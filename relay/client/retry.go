package client

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

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
	return idempotent(err, bad) && !mayHaveArrived(err)
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
// exponential delays in between. WithReachLimit may end it earlier.
func (c *Client) retry(ctx context.Context, again policy, attempt func() (answer, error)) (answer, error) {
	var last error
	bad, sent := 0, false
	seen, _ := ctx.Value(reachKey{}).(*reach)
	delays := &retryDelays{BackOff: NewBackOff(), seen: seen, limit: c.timeouts.reach, began: time.Now()}
	delays.end, _ = ctx.Deadline()
	delays.patience, _ = ctx.Value(patienceKey{}).(time.Duration)
	got, err := backoff.Retry(ctx, func() (answer, error) {
		began := time.Now()
		got, err := attempt()
		delays.note(time.Since(began), err)
		sent = sent || mayHaveArrived(err)
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

// call makes a call of the contract and reads its answer as T.
func call[T any](ctx context.Context, c *Client, again policy, build func() request) (T, error) {
	return finish[T](ctx, &attempts{client: c, build: build}, again)
}

// finish makes attempts until the policy says no, and reads the answer as T.
func finish[T any](ctx context.Context, a *attempts, again policy) (T, error) {
	var result T
	got, err := a.finish(ctx, again)
	if err != nil {
		return result, err
	}
	return result, read(ctx, got.body, &result)
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
