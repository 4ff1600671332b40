package execution

import (
	"fmt"
	"time"

	"colabrelay/shared/contract"
)

// far is when nothing is due.
const far = time.Hour

// nextTick is how long until something is due.
func (r *runner) nextTick() time.Duration {
	now := time.Now()
	next := now.Add(far)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if r.q.reserve.waiting() {
		sooner(r.written.Add(retryTime))
	}
	for _, past := range r.runs {
		if len(past.joined.text) > 0 {
			sooner(past.joined.since.Add(joinTime))
		}
	}
	if c := r.current; c != nil {
		c.due(sooner)
	}
	return max(0, next.Sub(now))
}

// due names the moments at which tick has something to do for the run.
func (r *run) due(sooner func(time.Time)) {
	switch {
	case r.reply != nil:
		sooner(r.graceEnd(r.repliedAt, idleGrace))
	case r.idle:
		sooner(r.graceEnd(r.idleAt, replyGrace))
	case r.ended:
	case !r.interrupted.IsZero():
		if r.cause != causeAsked {
			sooner(r.interrupted.Add(yieldTime))
		}
	case r.cause != causeNone:
		sooner(r.wantedAt.Add(acceptTime))
	case r.inputRequest != nil:
		sooner(r.inputSince.Add(contract.MaxInputWait))
	default:
		sooner(r.deadline)
	}
}

// graceEnd is until when the other one of reply and idle status is waited for. It
// moves on while messages keep coming.
func (r *run) graceEnd(since time.Time, grace time.Duration) time.Time {
	quiet := since
	if heard := r.heard(); heard.After(quiet) {
		quiet = heard
	}
	end, limit := quiet.Add(grace), since.Add(longGrace)
	if end.After(limit) {
		return limit
	}
	return end
}

// done reports that no more is to be waited for.
func (r *run) done(now time.Time) bool {
	switch {
	case r.reply != nil && r.idle:
		return true
	case r.reply != nil:
		return !now.Before(r.graceEnd(r.repliedAt, idleGrace))
	}
	return r.idle && !now.Before(r.graceEnd(r.idleAt, replyGrace))
}

// tick does what is due.
func (r *runner) tick(now time.Time) {
	for _, past := range r.runs {
		if len(past.joined.text) > 0 && now.Sub(past.joined.since) >= joinTime {
			past.flush(now)
		}
	}
	c := r.current
	if c == nil {
		return
	}
	if c.reply != nil || c.idle {
		r.finishIfDone()
		return
	}
	if c.ended {
		return
	}
	if c.inputRequest != nil && now.Sub(c.inputSince) >= contract.MaxInputWait {
		c.interrupt(causeInputWait, now)
	}
	if c.inputRequest == nil && !now.Before(c.deadline) {
		c.interrupt(causeDeadline, now)
	}
	r.sendInterrupt(c, now)
	r.giveUpWaiting(c, now)
}

// sendInterrupt sends SIGINT once the kernel runs the code.
func (r *runner) sendInterrupt(c *run, now time.Time) {
	if c.cause == causeNone || !c.interrupted.IsZero() {
		return
	}
	if !c.accepted && now.Sub(c.wantedAt) < acceptTime {
		return
	}
	c.interrupted = now
	if err := r.life.Interrupt(); err != nil {
		r.q.cfg.Log.Warn("interrupting the kernel", "component", "execution", "execution_id", c.entry.id, "err", err)
	}
	if c.inputRequest != nil {
		c.inputAnswered(now)
	}
}

// giveUpWaiting ends, for its readers, a run that does not yield at its deadline.
func (r *runner) giveUpWaiting(c *run, now time.Time) {
	if c.cause == causeAsked || c.interrupted.IsZero() || now.Sub(c.interrupted) < yieldTime {
		return
	}
	r.end(c.cause.status(), fmt.Sprintf(
		"it was interrupted and did not yield within %s: it still holds the kernel; restart_kernel ends it, and its variables with it", yieldTime))
}
