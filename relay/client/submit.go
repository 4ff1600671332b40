package client

import (
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
	a.build = func() request { return submitRequest(ctx, s) }
	again := policy(idempotent)
	if ctx.Value(queueFullKey{}) != nil {
		again = unlessFull
	}
	e, err := finish[contract.Execution](ctx, a, again)
	if errors.Is(err, bounded.ErrTooLong) {
		e, err = c.submitted(ctx, s.RequestID, err)
	}
	if refused := refusal(err); refused != nil && passing(refused) && a.arrived {
		err = uncertain(ctx, refused)
	}
	if err == nil && c.recorder != nil {
		c.recorder.Submitted(a.answered.ID, s, e)
	}
	return e, err
}

// uncertain is the error of a submit of which one attempt was refused and another one was not
// answered: that one may still be accepted.
func uncertain(ctx context.Context, refused *contract.Error) error {
	e := problem(KindTimeout, fmt.Sprintf("no answer arrived in time to one of the attempts; the answer to another one was %s: %s", refused.Code, refused.Message), context.Cause(ctx))
	e.sent = true
	return e
}

type queueFullKey struct{}

// WithQueueFull makes submits end with queue_full if the executor's queue is full, instead of
// trying again until there is a place.
func WithQueueFull(ctx context.Context) context.Context {
	return context.WithValue(ctx, queueFullKey{}, true)
}

// unlessFull is the policy for submits under WithQueueFull.
func unlessFull(err error, bad int) bool {
	refused := refusal(err)
	return (refused == nil || refused.Code != contract.CodeQueueFull) && idempotent(err, bad)
}

func submitRequest(ctx context.Context, s contract.Submit) request {
	seconds := min(s.WaitSeconds, contract.MaxWait.Seconds())
	wait := fitWait(ctx, time.Duration(seconds*float64(time.Second)))
	s.WaitSeconds = wait.Seconds()
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // submit has encoded it before
	}
	return request{method: http.MethodPost, path: contract.PathExecutions, body: text, wait: wait}
}

// fitWait limits wait to contract.MaxWait and to the time that ctx leaves, minus time for the
// answer to arrive: an answer after the end of ctx would lose the execution's id.
func fitWait(ctx context.Context, wait time.Duration) time.Duration {
	wait = min(wait, contract.MaxWait)
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, left-min(left/5, time.Second))
	}
	return max(wait, 0).Truncate(time.Millisecond)
}
