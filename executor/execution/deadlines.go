package execution

import (
	"context"
	"fmt"
	"slices"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

const (
	// yieldTime is how long interrupted code has to yield the kernel.
	yieldTime = 10 * time.Second
	// acceptTime is how long an interrupt waits for the kernel to start the code:
	// ipykernel ignores an earlier SIGINT, and the interrupt would be lost.
	acceptTime = 2 * time.Second
	// repeatTime is the least between two interrupts of a run. A request that the network repeats
	// must not disturb what the code does after the first one.
	repeatTime = time.Second
	// wakePause is between two requests that wake an event loop after an interrupt, and maxWakes
	// bounds their number: while code ignores the interrupt, they wait in the kernel.
	wakePause = time.Second
	maxWakes  = 30
	// idleGrace is how long a run with a reply waits for the idle status: past the
	// kernel's high-water mark, messages on iopub are dropped.
	idleGrace = time.Second
	// replyGrace is how long an idle run waits for its reply: ipykernel sends none if
	// it can't encode the content, for example a lone surrogate in an error's text.
	replyGrace = 2 * time.Second
	// maxGrace bounds either while messages keep arriving. A message of hundreds of
	// megabytes takes seconds; a thread that prints for ever must not delay the end
	// for ever.
	maxGrace = 30 * time.Second
	// tickTime is the time between two ticks while something is under way. Small pieces of stream text are
	// joined into one event for so long.
	tickTime = 50 * time.Millisecond
)

// isActive reports whether tick or tidy may have something to do before anything arrives.
func (r *runner) isActive() bool {
	_, shows := r.widgets.Due()
	return r.current != nil || shows || r.q.journal.NeedsFlush() || r.q.hasLater() ||
		slices.ContainsFunc(r.runs, func(x *run) bool { return len(x.joined.text) > 0 })
}

// graceEnd is until when a run that has a reply or an idle status waits for the other
// one. It moves while messages keep arriving.
func (r *run) graceEnd(since time.Time, grace time.Duration) time.Time {
	quiet := since
	if last := r.lastReceived(); last.After(quiet) {
		quiet = last
	}
	end, limit := quiet.Add(grace), since.Add(maxGrace)
	if end.After(limit) {
		return limit
	}
	return end
}

// done reports whether the run need not wait for anything more.
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
	for _, recent := range r.runs {
		recent.flush(now)
	}
	if due, ok := r.widgets.Due(); ok && !now.Before(due) && len(r.runs) > 0 {
		r.showWidgets(r.runs[len(r.runs)-1], now) // the present run, or what it left running
	}
	c := r.current
	switch {
	case c == nil:
	case c.reply != nil || c.idle:
		r.finishIfDone()
	case !c.ended:
		c.checkDeadlines(now)
		r.sendInterrupt(c, now)
		r.wake(c, now)
		r.endIfUnyielding(c, now)
	}
}

func (r *run) checkDeadlines(now time.Time) {
	if r.inputRequest != nil && now.Sub(r.inputSince) >= contract.MaxInputWait {
		r.interrupt(causeInputWait, now)
	}
	if r.inputRequest == nil && !now.Before(r.deadline) {
		r.interrupt(causeDeadline, now)
	}
}

// sendInterrupt sends SIGINT, if asked for, once the kernel runs the code.
func (r *runner) sendInterrupt(c *run, now time.Time) {
	if c.cause == causeNone || !c.interrupted.IsZero() {
		return
	}
	if !c.accepted && now.Sub(c.askedAt) < acceptTime {
		return
	}
	c.interrupted, c.wakeAt, c.woken = now, now, 0
	if err := r.kernel.Interrupt(); err != nil {
		r.q.log.Warn("interrupting the kernel", "execution_id", c.record.ID, "err", err)
	}
	if c.inputRequest != nil {
		c.inputAnswered(now)
		r.q.runningChanged(c.prompt)
	}
}

// wake sends a request that changes nothing after an interrupt, each second until the code ends:
// ipykernel only schedules the end of code that awaits, and its event loop sleeps on.
func (r *runner) wake(c *run, now time.Time) {
	if c.interrupted.IsZero() || now.Before(c.wakeAt) || c.woken >= maxWakes {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakePause)
	defer cancel()
	if _, err := r.kernel.Client.Send(ctx, jupyter.Shell, jupyter.MsgKernelInfoRequest, nil); err != nil {
		r.q.log.Warn("waking the kernel", "execution_id", c.record.ID, "err", err)
	}
	c.wakeAt, c.woken = now.Add(wakePause), c.woken+1
}

// endIfUnyielding ends, for its readers, a run that does not yield after its deadline.
func (r *runner) endIfUnyielding(c *run, now time.Time) {
	if c.cause == causeAsked || c.interrupted.IsZero() || now.Sub(c.interrupted) < yieldTime {
		return
	}
	r.end(c.cause.status(), fmt.Sprintf(
		"the code ignored the interrupt and is still running after %s; interrupt it again, or call restart_kernel, which deletes the variables", yieldTime))
	r.q.runningChanged(c.prompt)
}
