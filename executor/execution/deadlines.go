package execution

import (
	"context"
	"fmt"
	"slices"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/executor/kernel"
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
	// nothingDue is how long the runner waits when nothing is due.
	nothingDue = time.Hour
)

// untilDue is how long until tick or tidy has something to do.
func (r *runner) untilDue() time.Duration {
	now := time.Now()
	next := now.Add(nothingDue)
	add := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	r.q.eachDue(add)
	if r.q.journal.NeedsFlush() {
		add(r.flushed.Add(flushPause))
	}
	for _, recent := range r.runs {
		if len(recent.joined.text) > 0 {
			add(recent.joined.since.Add(joinTime))
		}
	}
	if due, ok := r.widgets.Due(); ok && len(r.runs) > 0 {
		add(due)
	}
	if r.current != nil {
		r.current.due(add)
	}
	return max(0, next.Sub(now))
}

// due adds the times at which tick has something to do for the run.
func (r *run) due(add func(time.Time)) {
	switch {
	case r.reply != nil:
		add(r.graceEnd(r.repliedAt, idleGrace))
	case r.idle:
		add(r.graceEnd(r.idleAt, replyGrace))
	case r.ended:
	case !r.interrupted.IsZero():
		if r.cause != causeAsked {
			add(r.interrupted.Add(yieldTime))
		}
		if r.woken < maxWakes {
			add(r.wakeAt)
		}
	case r.cause != causeNone:
		add(r.askedAt.Add(acceptTime))
	case r.inputRequest != nil:
		add(r.inputSince.Add(contract.MaxInputWait))
	default:
		add(r.deadline)
	}
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
		if len(recent.joined.text) > 0 && now.Sub(recent.joined.since) >= joinTime {
			recent.flush(now)
		}
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

const (
	// soonFree is how long a call waits for the execution or the call that has the kernel.
	// Two concurrent inspections of the variables take about 10 ms each. A cleanup may take
	// longer, and an execution that has ended for its readers may never yield the kernel.
	soonFree = 2 * time.Second
	// maxTurnWait bounds the whole wait. Relays give up after 20 s without an answer.
	maxTurnWait = 10 * time.Second
	// maxGuests is how many calls wait at the same time.
	maxGuests = 128
)

// BusyError is ErrKernelBusy, and the execution that has the kernel.
type BusyError struct{ Behind contract.Behind }

func (e *BusyError) Error() string {
	return fmt.Sprintf("run %s is using the kernel", e.Behind.ExecutionID)
}

// Is makes it an ErrKernelBusy.
func (e *BusyError) Is(target error) bool { return target == ErrKernelBusy }

// busyLocked returns why the kernel is not idle.
func (q *Queue) busyLocked() error {
	if b := q.behindLocked(); b != nil {
		return &BusyError{*b}
	}
	return ErrKernelBusy
}

// guests are the calls of WithIdleKernel.
type guests struct {
	waiting []chan struct{} // one for each call, closed when it gets the kernel
	first   int             // how many of them get it before the next execution
	lent    bool            // a call has the kernel
	holders uint64          // executions and calls that have had the kernel
	since   time.Time       // when the last of them got it
}

// WithIdleKernel calls f with an idle kernel, which no execution gets until f returns.
// f's context ends with the kernel. When an execution ends, all calls that wait have the
// kernel before the next one, so that they get it also while the queue is never empty.
//
// The error is ErrKernelBusy if the execution that has the kernel goes on for soonFree, or has
// done so already, and kernel.ErrStarting or kernel.ErrDead if there is no kernel.
func (q *Queue) WithIdleKernel(ctx context.Context, f func(ctx context.Context, k *kernel.Kernel) error) error {
	turn, err := q.visit()
	if err == nil {
		err = q.await(ctx, turn)
	}
	if err != nil {
		return err
	}
	defer q.giveBack()
	k, err := q.cfg.Kernel.Ready()
	if err != nil {
		return err
	}
	ctx, cancel := k.WhileRunning(ctx)
	defer cancel()
	err = f(ctx, k)
	select {
	case <-k.Done():
		return fmt.Errorf("%w: the kernel ended during the call: %s", kernel.ErrStarting, k.Reason())
	default:
		return err
	}
}

// visit queues a call. The channel is closed when the call has the kernel.
func (q *Queue) visit() (turn chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, err := q.cfg.Kernel.Ready(); err != nil {
		return nil, err
	}
	goesOn := q.running != nil && !q.running.Snapshot().Status.Finished() && time.Since(q.guests.since) >= soonFree
	if goesOn || len(q.guests.waiting) >= maxGuests {
		return nil, q.busyLocked()
	}
	turn = make(chan struct{})
	q.guests.waiting = append(q.guests.waiting, turn)
	q.lendLocked()
	return turn, nil
}

// await waits until the call has the kernel. It fails if the kernel does not change hands
// for soonFree.
func (q *Queue) await(ctx context.Context, turn chan struct{}) error {
	limit, same := time.NewTimer(maxTurnWait), time.NewTicker(soonFree)
	defer limit.Stop()
	defer same.Stop()
	for holders := q.holders(); ; {
		select {
		case <-turn:
			return nil
		case <-ctx.Done():
			return q.leave(turn, ctx.Err())
		case <-limit.C:
			return q.leave(turn, nil)
		case <-same.C:
			now := q.holders()
			if now == holders {
				return q.leave(turn, nil)
			}
			holders = now
		}
	}
}

func (q *Queue) holders() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.guests.holders
}

// leave gives up the turn of a call that waits. If the call has the kernel by now, there is no
// error. Without a reason, the error says that the kernel is busy.
func (q *Queue) leave(turn chan struct{}, reason error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.guests.waiting, turn)
	if i < 0 {
		return nil
	}
	q.guests.waiting = slices.Delete(q.guests.waiting, i, i+1)
	q.guests.first = min(q.guests.first, len(q.guests.waiting))
	if reason == nil {
		reason = q.busyLocked()
	}
	return reason
}

// lendLocked lends the kernel to the next call if it is free and no execution comes first.
func (q *Queue) lendLocked() {
	g := &q.guests
	if q.running != nil || q.choosing || g.lent || len(g.waiting) == 0 || g.first == 0 && len(q.pending) > 0 {
		return
	}
	close(g.waiting[0])
	g.waiting = slices.Delete(g.waiting, 0, 1)
	g.first = max(g.first-1, 0)
	g.lent = true
	q.takenLocked()
}

// takenLocked notes that an execution or a call has just got the kernel.
func (q *Queue) takenLocked() {
	q.guests.holders++
	q.guests.since = time.Now()
}

func (q *Queue) giveBack() {
	q.mu.Lock()
	q.guests.lent = false
	q.lendLocked()
	q.mu.Unlock()
	q.signal()
}
