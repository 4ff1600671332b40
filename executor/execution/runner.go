package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
)

const (
	// yieldTime is how long interrupted code has to give the kernel back.
	yieldTime = 10 * time.Second
	// acceptTime is how long an interrupt waits for the kernel to say it began: a
	// SIGINT before that is ignored by ipykernel and lost.
	acceptTime = 2 * time.Second
	// idleGrace follows a reply whose idle status does not come: past the
	// kernel's high-water mark iopub messages are dropped.
	idleGrace = time.Second
	// replyGrace follows an idle status whose reply does not come: ipykernel sends
	// none when its content can't be encoded, a lone surrogate in an error's text say.
	replyGrace = 2 * time.Second
	// longGrace is how long either may become while messages keep coming: one of
	// hundreds of megabytes takes seconds, and a thread that prints for ever must not
	// hold the end up for ever.
	longGrace = 30 * time.Second
	// drainQuiet ends the reading of what a dead kernel had still sent.
	drainQuiet = 100 * time.Millisecond
	drainTime  = 2 * time.Second
	// stopTime bounds the wait for the running execution at shutdown.
	stopTime = 4 * time.Second
	// recentRuns of a life can still get late output, from threads they left behind.
	recentRuns = 16
)

// runner runs executions on one kernel life. One goroutine does all of it.
type runner struct {
	q        *Queue
	life     *kernel.Kernel
	received chan *jupyter.Message
	runs     []*run    // the newest last; current is one of them
	written  time.Time // when what could not be written was last tried again
	current  *run      // has the kernel, nil when it is free
}

// Run runs what is submitted, kernel life after kernel life, until ctx ends.
// Then the running execution is interrupted and the waiting ones are cancelled.
func (q *Queue) Run(ctx context.Context) error {
	defer close(q.stopped)
	defer q.close()
	for {
		changed := q.cfg.Kernel.Changed()
		life, err := q.cfg.Kernel.Ready()
		switch {
		case err == nil:
			q.serve(ctx, life)
		case errors.Is(err, kernel.ErrDead):
			q.cancelAll("the kernel died too often and was given up; restart_kernel starts it again")
		}
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-changed:
		case c := <-q.commands:
			c.answer <- errNotCurrent
		case <-ctx.Done():
			return nil
		}
	}
}

// close refuses what comes from now on and cancels what waits.
func (q *Queue) close() {
	q.mu.Lock()
	q.closing = true
	if q.spare != nil {
		q.spare.remove()
		q.spare = nil
	}
	q.mu.Unlock()
	q.cancelAll("the executor shut down before this started")
}

// serve runs executions on life until it or ctx ends.
func (q *Queue) serve(ctx context.Context, life *kernel.Kernel) {
	r := &runner{q: q, life: life, received: make(chan *jupyter.Message)}
	receiving, stop := context.WithCancel(context.WithoutCancel(ctx))
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		r.receive(receiving)
	}()
	defer func() {
		stop()
		<-pumped
		for _, past := range r.runs {
			past.entry.log.close()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.begin(ctx)
		q.makeSpare()
		r.writeAgain()
		timer.Reset(r.nextTick())
		select {
		case m := <-r.received:
			r.message(ctx, m)
		case now := <-timer.C:
			r.tick(now)
		case <-q.wake:
		case c := <-q.commands:
			c.answer <- r.command(c)
		case <-life.Done():
			r.died(ctx)
			return
		case <-ctx.Done():
			r.stop()
			return
		}
	}
}

// writeAgain writes down what could not be written before, not too often.
func (r *runner) writeAgain() {
	if now := time.Now(); r.q.reserve.waiting() && now.Sub(r.written) >= retryTime {
		r.q.reserve.flush()
		r.written = time.Now()
	}
}

// receive hands messages over one at a time; the client's own queue holds the rest.
func (r *runner) receive(ctx context.Context) {
	for {
		m, err := r.life.Client.Receive(ctx)
		if err != nil {
			return
		}
		select {
		case r.received <- m:
		case <-ctx.Done():
			return
		}
	}
}

// begin sends the next execution to the kernel when it is free.
func (r *runner) begin(ctx context.Context) {
	if r.current != nil || r.life.EndedOnRequest() { // a kernel that is being ended runs nothing more
		return
	}
	e := r.q.take()
	if e == nil {
		return
	}
	now := time.Now()
	code, timeout, err := e.start(r.life.ID, now)
	if err != nil {
		e.finish(contract.StatusFailed, fmt.Sprintf("its start could not be written down, so the code did not run: %v", err), 0)
		r.q.yield()
		r.q.signal()
		return
	}
	// Written down before it is sent: what a kernel has seen is never "queued".
	id, err := r.life.Client.Send(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
		Code:         code,
		StoreHistory: !e.unstored,
		AllowStdin:   true,
		// With true, ipykernel aborts requests that arrive just after a failure.
		StopOnError: false,
	})
	// The look takes its time while the kernel still reads the request.
	e.usedBefore(r.q.memory.inUse())
	started := &run{entry: e, heard: r.life.Client.LastReceived, msgID: id, deadline: now.Add(timeout), log: r.q.cfg.Log}
	if r.runs = append(r.runs, started); len(r.runs) > recentRuns {
		r.runs[0].entry.log.close()
		r.runs = r.runs[1:]
	}
	r.current = started
	if err != nil {
		r.end(contract.StatusFailed, fmt.Sprintf("the kernel could not be reached, the code did not run: %v", err))
		r.release()
	}
}

// message routes one message from the kernel by its parent.
func (r *runner) message(ctx context.Context, m *jupyter.Message) {
	defer m.Release()
	target := r.byParent(m)
	if target == nil {
		return
	}
	if m.Dropped.Messages > 0 {
		target.missed(m.Dropped.Messages, m.Dropped.Bytes)
	}
	if r.restartsDoing(m) {
		return
	}
	switch m.Header.MsgType {
	case jupyter.MsgExecuteReply:
		r.reply(target, m)
	case jupyter.MsgStatus:
		if target == r.current {
			target.status(m)
			r.finishIfDone()
		}
	case jupyter.MsgExecuteInput:
		target.accept(m)
	case jupyter.MsgInputRequest:
		if target == r.current {
			target.askInput(m, time.Now())
		}
	case msgColabRequest:
		answerColab(ctx, r.life.Client, m)
	default:
		target.output(m, time.Now())
	}
}

func (r *runner) byParent(m *jupyter.Message) *run {
	for i := len(r.runs) - 1; i >= 0; i-- {
		if r.runs[i].msgID == m.ParentHeader.MsgID {
			return r.runs[i]
		}
	}
	return nil
}

func (r *runner) reply(target *run, m *jupyter.Message) {
	if target != r.current {
		return
	}
	reply := &jupyter.ExecuteReply{}
	if m.Cut > 0 {
		*reply = hugeReply(m)
	} else if err := m.Decode(reply); err != nil {
		reply.Status = "error"
		reply.EName, reply.EValue = "BadReply", fmt.Sprintf("the kernel's reply can't be read: %v", err)
	}
	target.reply, target.repliedAt = reply, time.Now()
	target.restarted = reply.Status != "ok" && r.sentByRestart(m)
	r.q.memory.inUse() // ahead of end: the idle status is still on its way
	r.finishIfDone()
}

// finishIfDone ends the current run once both the reply and the idle status came,
// or one of them and its grace is over.
func (r *runner) finishIfDone() {
	c := r.current
	if c == nil || !c.done(time.Now()) {
		return
	}
	if !c.ended {
		status, reason := c.outcome()
		r.end(status, reason)
	}
	r.release()
}

// end closes the current run for its readers. It may still have the kernel.
func (r *runner) end(status contract.Status, reason string) {
	c := r.current
	c.flush(time.Now())
	c.ended = true
	if c.reply != nil && !c.restarted {
		c.page(c.reply)
		c.entry.result(c.reply)
	}
	c.entry.finish(status, c.explain(reason), r.q.memory.inUse())
}

// release lets the next execution have the kernel.
func (r *runner) release() {
	r.current = nil
	r.q.yield()
}

// died ends everything that depended on the life that is gone.
func (r *runner) died(ctx context.Context) {
	r.drain(ctx)
	if c := r.current; c != nil {
		if !c.ended {
			status, reason := contract.StatusKernelDied, "the kernel died: "+r.life.Reason()+"; its variables are gone"
			switch {
			case !r.life.RestartBegan().IsZero():
				status, reason = contract.StatusKernelRestarted, restartReason
			case r.life.EndedOnRequest():
				status, reason = contract.StatusInterrupted, r.life.Reason()
			}
			r.end(status, reason)
		}
		r.release()
	}
	r.q.cancelAll("the kernel ended before this started (" + r.life.Reason() + "); its variables are gone")
}

// drain takes in what the kernel had sent before it died.
func (r *runner) drain(ctx context.Context) {
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	for {
		quiet := time.NewTimer(drainQuiet)
		select {
		case m := <-r.received:
			quiet.Stop()
			r.message(ctx, m)
		case <-quiet.C:
			return
		case <-limit.C:
			quiet.Stop()
			return
		}
	}
}

// stop interrupts the running execution because the executor shuts down, and
// takes in what it still says.
func (r *runner) stop() {
	r.q.close()
	if r.current == nil || r.current.ended {
		return
	}
	r.current.interrupt(causeShutdown, time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	for r.current != nil {
		r.tick(time.Now())
		timer := time.NewTimer(r.nextTick())
		select {
		case m := <-r.received:
			r.message(ctx, m)
		case <-timer.C:
		case <-r.life.Done():
			r.drain(ctx)
			cancel()
		case <-ctx.Done():
			if r.current != nil {
				r.end(contract.StatusInterrupted, causeShutdown.reason())
				r.release()
			}
		}
		timer.Stop()
	}
}

func (r *runner) command(c command) error {
	if r.current == nil || r.current.entry.id != c.id {
		return errNotCurrent
	}
	return c.do(r)
}

func (r *runner) interruptAsked() error {
	if r.current.ended {
		return r.life.Interrupt()
	}
	r.current.interrupt(causeAsked, time.Now())
	r.tick(time.Now())
	return nil
}

func (r *runner) input(ctx context.Context, text string) error {
	return r.current.answerInput(ctx, r.life.Client, text)
}
