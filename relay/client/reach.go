package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
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
	d.took, d.refused = took, refusal(err) != nil && !mayHaveArrived(err)
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
