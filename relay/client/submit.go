package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// Submit runs code and waits for its end, an input request, or WaitSeconds. It retries until
// ctx ends, always with one RequestID (created here if empty), so the code runs at most once.
//
// Each attempt is signed for one executor: when a new VM has taken over the address, code that
// may have run on the old one must not run again unnoticed. A submit that certainly reached no
// executor before goes to the new one, which InstanceID then names. Otherwise Submit returns
// the refusal, new_instance, and later submits go to the new one.
func (c *Client) Submit(ctx context.Context, s contract.Submit) (contract.Execution, error) {
	return c.submit(ctx, s, &attempts{client: c, moves: true})
}

// SubmitTo is Submit for one instance only. Every other instance refuses with new_instance.
func (c *Client) SubmitTo(ctx context.Context, instanceID string, s contract.Submit) (contract.Execution, error) {
	return c.submit(ctx, s, &attempts{client: c, pinned: instanceID})
}

func (c *Client) submit(ctx context.Context, s contract.Submit, a *attempts) (contract.Execution, error) {
	if s.RequestID == "" {
		s.RequestID = rand.Text()
	}
	if _, err := json.Marshal(s); err != nil {
		return contract.Execution{}, fmt.Errorf("writing a submit: %w", err)
	}
	a.build = func() request { return c.submitRequest(ctx, s) }
	e, err := finishHeld[contract.Execution](ctx, a, func(err error, bad int) bool {
		atOnce := ctx.Value(queueFullKey{}) != nil && isFull(err) && !a.arrived
		return !atOnce && idempotent(err, bad)
	})
	if errors.Is(err, bounded.ErrTooLong) {
		e, err = c.submitted(ctx, s.RequestID, err)
	}
	if err != nil {
		return e, a.unsettled(ctx, err)
	}
	if c.recorder != nil {
		c.recorder.Submitted(a.answered.ID, s, e)
	}
	return e, nil
}

// unsettled returns err, with which a submit ended, so that MayRun knows whether its code may run:
// an attempt was sent, and no signed answer says what became of it.
func (a *attempts) unsettled(ctx context.Context, err error) error {
	refused := refusal(err)
	switch {
	case !a.arrived:
		return err
	case refused != nil && refused.Code == contract.CodeNewInstance:
		return replacedError{err}
	case refused != nil && isFinal(refused):
		return err
	case refused != nil:
		return uncertain(ctx, refused)
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = problem(KindBadAnswer, err.Error(), err)
	}
	fresh := *e
	fresh.sent, fresh.mayRun = true, true
	return &fresh
}

// isFinal reports whether the executor refuses this submit whenever it arrives. Other refusals
// depend on the moment: an attempt that is still on its way may be accepted.
func isFinal(refused *contract.Error) bool {
	switch refused.Code {
	case contract.CodeBadRequest, contract.CodeConflict, contract.CodeTooLarge, contract.CodeNotSupported,
		contract.CodeUnauthorized:
		return true
	}
	return false
}

// uncertain is the error of a submit of which one attempt was refused and another one was not
// answered: that one may still be accepted.
func uncertain(ctx context.Context, refused *contract.Error) error {
	e := problem(KindTimeout, fmt.Sprintf("one attempt to submit the code got no answer, and another one was refused (%s: %s), so the code may still run", refused.Code, refused.Message), context.Cause(ctx))
	e.sent, e.mayRun = true, true
	return e
}

type queueFullKey struct{}

// WithQueueFull makes submits end with queue_full if the executor's queue is full, instead of
// trying again until there is a place. A submit with an unanswered attempt is tried again
// nevertheless, until its outcome is known.
func WithQueueFull(ctx context.Context) context.Context {
	return context.WithValue(ctx, queueFullKey{}, true)
}

func isFull(err error) bool {
	refused := refusal(err)
	return refused != nil && refused.Code == contract.CodeQueueFull
}

// MayRun reports whether the code of a submit that ended with err may run nevertheless. The code
// of one that ended with another error certainly does not.
func MayRun(err error) bool {
	e, ok := errors.AsType[*Error](err)
	_, replaced := errors.AsType[replacedError](err)
	return replaced || ok && e.mayRun
}

// replacedError is the refusal of a new VM after an attempt that the old one may have accepted.
type replacedError struct{ error }

func (e replacedError) Unwrap() error { return e.error }

func (c *Client) submitRequest(ctx context.Context, s contract.Submit) request {
	seconds := min(s.WaitSeconds, contract.MaxWait.Seconds())
	wait := c.fitWait(ctx, time.Duration(seconds*float64(time.Second)))
	s.WaitSeconds = wait.Seconds()
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // submit has encoded it before
	}
	return request{method: http.MethodPost, path: contract.PathExecutions, body: text, wait: wait}
}

// fitWait limits wait to contract.MaxWait, to what proxies wait for, and to the time that ctx
// leaves, minus time for the answer to arrive: an answer after the end of ctx would lose the
// execution's id.
func (c *Client) fitWait(ctx context.Context, wait time.Duration) time.Duration {
	wait = min(wait, contract.MaxWait, cmp.Or(time.Duration(c.limits.wait.Load()), contract.MaxWait))
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, left-min(left/5, time.Second))
	}
	return max(wait, 0).Truncate(time.Millisecond)
}
