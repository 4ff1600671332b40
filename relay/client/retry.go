package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

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
		r := a.build()
		if r.method != http.MethodGet {
			r.instance = a.instance
		}
		got, err := a.client.send(ctx, r)
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
// tunnel's service said that no executor is online. It is false if a connection broke after the
// request was sent: then the caller must retry until it knows.
func absent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	noConnection := ok && !e.sent && (e.Kind == KindUnreachable || e.Kind == KindNoSuchHost)
	return refusal(err) == nil && (noConnection || ok && e.Kind == KindTunnelOffline)
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

// retry calls attempt until it succeeds, the policy again says no, ctx ends, or the budget does,
// with jittered exponential delays in between. There is no number of attempts.
func (c *Client) retry(ctx context.Context, again policy, attempt func() (answer, error)) (answer, error) {
	var last error
	bad, sent, b := 0, false, newBudget(ctx)
	for {
		began := time.Now()
		got, err := attempt()
		sent = sent || MayHaveArrived(err)
		if kindOf(err) == KindBadAnswer {
			bad++
		}
		switch {
		case err == nil:
			return got, nil
		case ctx.Err() != nil && refusal(err) == nil:
			return got, everSent(ended(ctx, cmp.Or(last, err)), sent)
		case !again(err, bad):
			return got, everSent(err, sent)
		}
		last = err
		b.note(time.Since(began), err)
		delay, more := b.delay()
		if !more {
			return got, everSent(b.unreachable(err), sent)
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return got, everSent(ended(ctx, last), sent)
		}
	}
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

// answerTime is how much of a call's time is kept for the answer to its last attempt, at most.
const answerTime = 3 * time.Second

// budget is the time that a call has for its attempts.
type budget struct {
	delays   *backoff.ExponentialBackOff
	began    time.Time
	end      time.Time     // of ctx; zero for none
	reach    *reach        // see WithReachLimit; nil for none
	patience time.Duration // see WithPatience; zero for none
	silence  Silence       // of the call's attempts

	last time.Time // when the next attempt must begin; zero for no limit
}

func newBudget(ctx context.Context) *budget {
	b := &budget{delays: NewBackOff(), began: time.Now()}
	b.end, _ = ctx.Deadline()
	b.reach, _ = ctx.Value(reachKey{}).(*reach)
	b.patience, _ = ctx.Value(patienceKey{}).(time.Duration)
	return b
}

// note takes in an attempt that failed and took so long. Until an executor is reached, the next one
// must end in time for ReachLimit, if it takes as long. After a refusal that is the outcome of its
// attempt, it must begin in time for its answer: otherwise the outcome would not stay known.
func (b *budget) note(took time.Duration, err error) {
	b.last = time.Time{}
	if b.reach != nil && !b.reach.reached.Load() {
		b.within(b.reach.began.Add(ReachLimit - took))
	}
	if refusal(err) != nil {
		b.silence.End()
		if !MayHaveArrived(err) && !b.end.IsZero() {
			b.within(b.end.Add(-min(answerTime, time.Since(b.began)/10)))
		}
	} else if silent := max(b.silence.Failed(), 1); b.patience > 0 {
		b.within(time.Now().Add(b.patience - silent))
	}
}

// within has the next attempt begin before a moment.
func (b *budget) within(last time.Time) {
	if b.last.IsZero() || last.Before(b.last) {
		b.last = last
	}
}

// delay returns how long to wait before the next attempt, and whether there may be one.
func (b *budget) delay() (time.Duration, bool) {
	next := b.delays.NextBackOff()
	if b.last.IsZero() {
		return next, true
	}
	left := time.Until(b.last)
	return min(next, left), left > 0
}

// unreachable is the last error of a call, with what was tried if nothing was reached.
func (b *budget) unreachable(last error) error {
	e, ok := errors.AsType[*Error](last)
	if !ok || b.reach == nil || b.reach.reached.Load() {
		return last
	}
	fresh := *e
	fresh.Message = fmt.Sprintf("%s; no executor answered in %d attempts and %.0f s", e.Message, b.reach.tries.Load(), time.Since(b.reach.began).Seconds())
	fresh.Err = last
	return &fresh
}

// once makes a single attempt at a call of the contract.
func (c *Client) once(ctx context.Context, build func() request) (answer, error) {
	a := &attempts{client: c, build: build}
	if err := a.address(ctx); err != nil {
		return answer{}, err
	}
	return a.attempt(ctx)
}

// finish makes attempts until the policy says no.
func (a *attempts) finish(ctx context.Context, again policy) (answer, error) {
	if err := a.address(ctx); err != nil {
		return answer{}, err
	}
	return a.client.retry(ctx, again, func() (answer, error) { return a.attempt(ctx) })
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
