package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// reachLimit bounds how long the calls under one WithReachLimit try an address where none
// of them ever reached an executor. Without it a caller waited out its whole time, 45 s
// and more, for an executor that was not running. A connection that broke after it had
// worked is waited for as long as the caller likes.
const reachLimit = 12 * time.Second

type reachKey struct{}

// contact is what the calls under one ctx have met so far.
type reach struct {
	began   time.Time
	tries   atomic.Int32
	reached atomic.Bool // something was there, or a request may have got through
}

// WithReachLimit bounds, for the calls made under the ctx it returns, the wait for an
// executor that none of them has reached: reachLimit for all of them together.
func WithReachLimit(ctx context.Context) context.Context {
	return context.WithValue(ctx, reachKey{}, &reach{began: time.Now()})
}

// recordAttempt remembers how a try ended.
func recordAttempt(ctx context.Context, err error) {
	if seen, found := ctx.Value(reachKey{}).(*reach); found {
		seen.tries.Add(1)
		if !absent(err) {
			seen.reached.Store(true)
		}
	}
}

// absent reports that a try found nobody: no connection could be made, or the tunnel's
// service said that it knows no executor there. Whatever may have brought the request to
// an executor is no such error, and the caller must go on until it knows.
func absent(err error) bool {
	var e *Error
	if refusal(err) != nil || !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case KindUnreachable, KindNoSuchHost:
		return !e.sent
	case KindTunnelOffline:
		return true
	}
	return false
}

// delays are those between the tries of one call. While nobody was reached they end in
// time: the next try may take as long as the last one did.
type retryDelays struct {
	backoff.BackOff
	seen  *reach // nil where the caller waits as long as its ctx lasts
	limit time.Duration
	took  time.Duration // by the last try
	over  bool
}

func (c *Client) newRetryDelays(ctx context.Context) *retryDelays {
	seen, _ := ctx.Value(reachKey{}).(*reach)
	return &retryDelays{BackOff: newBackOff(), seen: seen, limit: c.timeouts.reach}
}

// NextBackOff implements backoff.BackOff.
func (p *retryDelays) NextBackOff() time.Duration {
	next := p.BackOff.NextBackOff()
	if p.seen == nil || p.seen.reached.Load() {
		return next
	}
	left := p.limit - time.Since(p.seen.began) - p.took
	if p.over = left <= 0; p.over {
		return backoff.Stop
	}
	return min(next, left)
}

// unreachable is the last error of a call that reached nobody, with what was tried.
func (p *retryDelays) unreachable(last error) error {
	var e *Error
	if !errors.As(last, &e) {
		return last
	}
	told := *e
	told.Message = fmt.Sprintf("%s; tried %d times in %.0f s, and no executor answered", e.Message, p.seen.tries.Load(), time.Since(p.seen.began).Seconds())
	told.Err = last
	return &told
}

// NeverSent reports that err ended a call, and that none of its tries can have reached an
// executor.
func NeverSent(err error) bool {
	var e *Error
	if refusal(err) != nil || !errors.As(err, &e) || e.sent {
		return false
	}
	return e.Kind == KindUnreachable || e.Kind == KindNoSuchHost
}
