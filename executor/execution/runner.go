package execution

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"colabrelay/executor/comm"
	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
)

const (
	// recentRuns is how many runs of a kernel still get late output, from threads that
	// they left running.
	recentRuns = 16
	// flushPause is the time between two attempts to flush the journal.
	flushPause = time.Second
)

// runner runs executions on one kernel, in one goroutine.
type runner struct {
	q       *Queue
	kernel  *kernel.Kernel
	runs    []*run    // the newest last; current is one of them
	current *run      // has the kernel; nil when the kernel is free
	flushed time.Time // when the journal was last flushed
	widgets comm.Board
}

// Run runs what is submitted, on one kernel after another, until ctx ends. Then it
// interrupts the running execution and cancels the waiting ones.
func (q *Queue) Run(ctx context.Context) error {
	defer close(q.stopped)
	defer q.close()
	for {
		changed := q.cfg.Kernel.Changed()
		k, err := q.cfg.Kernel.Ready()
		switch {
		case err == nil:
			q.serve(ctx, k)
		case errors.Is(err, kernel.ErrDead):
			q.loseAll("the kernel died too often and is not started again; use restart_kernel to start it")
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

// serve runs executions on k until k or ctx ends.
func (q *Queue) serve(ctx context.Context, k *kernel.Kernel) {
	r := &runner{q: q, kernel: k}
	q.kernelStarted(k.ID)
	defer func() {
		for _, recent := range r.runs {
			recent.record.CloseLog()
		}
		r.tidy()
	}()
	ticker := time.NewTicker(tickTime)
	defer ticker.Stop()
	ended := ctx.Done()
	var late <-chan time.Time // the executor shuts down, and the running execution does not end
	for ended != nil || r.current != nil && !r.current.ended {
		r.begin(ctx)
		r.tidy()
		var ticks <-chan time.Time
		if r.isActive() {
			ticks = ticker.C
		}
		select {
		case <-k.Client.Arrived():
			r.receive(ctx)
		case now := <-ticks:
			r.tick(now)
		case <-q.wake:
		case c := <-q.commands:
			c.answer <- r.command(c)
		case <-k.Done():
			r.died(ctx)
			return
		case <-ended:
			ended, late, ctx = nil, time.After(stopTime), context.WithoutCancel(ctx)
			q.close()
			if r.current != nil {
				r.current.interrupt(causeShutdown, time.Now())
			}
		case <-late:
			r.end(contract.StatusInterrupted, causeShutdown.reason())
			r.release()
		}
	}
}

// receive handles the oldest message that waits. One at a time, so that a flood does not
// delay commands and deadlines.
func (r *runner) receive(ctx context.Context) {
	if m := r.kernel.Client.Next(); m != nil {
		r.message(ctx, m)
	}
}

// tidy does what no reader waits for: the next run has begun, and the readers of one that
// has ended run first.
func (r *runner) tidy() {
	if r.q.ended.Swap(false) {
		runtime.Gosched()
		r.q.journal.Trim()
	}
	if r.q.journal.NeedsFlush() && time.Since(r.flushed) >= flushPause {
		r.q.journal.Flush()
		r.flushed = time.Now()
	}
}

// begin starts the next execution if the kernel is free and not being ended.
func (r *runner) begin(ctx context.Context) {
	if r.current != nil || r.kernel.EndedOnRequest() {
		return
	}
	w := r.q.next()
	if w == nil {
		return
	}
	turn := w.Begin(r.kernel.ID)
	if turn.Record == nil {
		r.q.goOn(w, turn.Next)
		r.q.yield()
		r.q.signal()
		return
	}
	if w.single == nil {
		r.q.chosen(turn.Record)
	}
	now := time.Now()
	timeout, err := start(turn.Record, r.kernel.ID, now)
	if err != nil {
		turn.Record.Finish(contract.StatusFailed, fmt.Sprintf("its start could not be saved, so the code did not run: %v", err), 0)
		turn.Record.CloseLog()
		r.tell(&run{record: turn.Record, source: w})
		r.q.yield()
		r.q.signal()
		return
	}
	r.tellKernel(ctx)
	// Saved before it is sent: what a kernel has received is never "queued".
	id, err := r.send(ctx, turn)
	r.prepare(turn.Record)
	r.current = &run{record: turn.Record, source: w, lastReceived: r.kernel.Client.LastReceived, msgID: id, deadline: now.Add(timeout), log: r.q.log, widgets: &r.widgets}
	r.remember(r.current)
	switch {
	case err == nil:
		return
	case errors.Is(err, jupyter.ErrClosed):
		r.end(contract.StatusCancelled, "the kernel ended before it got the code, so the code did not run; its variables are gone")
	default:
		r.end(contract.StatusFailed, fmt.Sprintf("the kernel could not be reached, so the code did not run: %v", err))
	}
	r.release()
}

// send sends the code to the kernel. What comes before it is a request of its own, which the
// kernel handles first, and whose reply belongs to no run.
func (r *runner) send(ctx context.Context, turn Turn) (id string, err error) {
	if turn.Before != "" {
		_, err := r.kernel.Client.Send(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
			Silent: true, UserExpressions: map[string]string{"before": turn.Before},
		})
		if err != nil {
			return "", err
		}
	}
	var expressions map[string]string
	if turn.Again != "" {
		expressions = map[string]string{againKey: turn.Again}
	}
	return r.kernel.Client.Send(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
		Code:            turn.Code,
		StoreHistory:    !turn.Record.Unstored,
		UserExpressions: expressions,
		AllowStdin:      true,
		// With true, ipykernel aborts requests that arrive just after a failure.
		StopOnError: false,
	})
}

// prepare measures memory, which the next update saves, and makes the run's folder, while the kernel
// still reads the request: before the first output it would take a tenth of a quick run.
func (r *runner) prepare(record *journal.Record) {
	record.OpenLog()
	used := r.q.memory.inUse()
	record.UpdateInMemory(func(x *contract.Execution) { x.MemoryBeforeBytes = used })
}

func (r *runner) remember(started *run) {
	if r.runs = append(r.runs, started); len(r.runs) > recentRuns {
		r.runs[0].record.CloseLog()
		r.runs = r.runs[1:]
	}
}

// message handles a message from the kernel. Its parent says which run it belongs to.
func (r *runner) message(ctx context.Context, m *jupyter.Message) {
	defer m.Release()
	if comm.Is(m) { // of whichever run, or of none
		r.widgets.Message(m)
		return
	}
	parent := m.ParentHeader.MsgID
	i := slices.IndexFunc(r.runs, func(x *run) bool { return x.msgID == parent })
	stray := i < 0 && parent != "" // without a parent is what the kernel prints while it starts
	if stray {
		i = len(r.runs) - 1
	}
	if i < 0 {
		return
	}
	target := r.runs[i]
	if m.Dropped.Messages > 0 {
		target.gap(m.Dropped.Messages, m.Dropped.Bytes)
	}
	if r.causedByRestart(m) {
		return
	}
	if r.widgets.Capture(m) {
		return
	}
	if stray {
		target.strayOutput(m, time.Now())
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
			target.requestInput(m, time.Now())
			r.q.runningChanged(target.prompt)
		}
	case msgColabRequest:
		answerColab(ctx, r.kernel.Client, m)
	default:
		target.output(m, time.Now())
	}
}

func (r *runner) reply(target *run, m *jupyter.Message) {
	if target != r.current {
		return
	}
	reply := &jupyter.ExecuteReply{}
	if m.Cut > 0 {
		*reply = hugeReply(m)
		if reply.Status == "ok" { // what was to be shown in a pager
			target.gap(1, m.Cut)
		}
	} else if err := m.Decode(reply); err != nil {
		reply.Status = "error"
		reply.EName, reply.EValue = "BadReply", fmt.Sprintf("the kernel's reply can't be decoded: %v", err)
	}
	target.reply, target.repliedAt = reply, time.Now()
	target.restarted = reply.Status != "ok" && r.sentAfterRestart(m)
	r.q.memory.inUse() // for end, while the idle status is still on its way
	r.finishIfDone()
}

// finishIfDone ends the current run when both reply and idle status have arrived, or
// one of them and the other's grace period is over.
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

// end ends the current run for its readers. It may still have the kernel.
func (r *runner) end(status contract.Status, reason string) {
	c := r.current
	r.showWidgets(c, time.Now())
	c.keepWidgets(time.Now())
	c.flush(time.Now())
	c.ended = true
	if c.reply != nil && !c.restarted {
		c.page(c.reply)
		c.result(c.reply)
	}
	if status == contract.StatusSucceeded {
		r.kernel.RunSucceeded()
	}
	c.record.Finish(status, c.explain(reason), r.q.memory.inUse())
	r.tell(c)
}

// release frees the kernel for the next execution. Of the reply, which can have megabytes,
// nothing more is used.
func (r *runner) release() {
	if r.current.reply != nil {
		r.current.reply = &jupyter.ExecuteReply{Status: r.current.reply.Status}
	}
	r.current = nil
	r.q.yield()
}

func (r *runner) command(c command) error {
	if r.current == nil || r.current.record.ID != c.id {
		return errNotCurrent
	}
	return c.do(r)
}

// interruptAsked interrupts the current run, and interrupts it again if the last interrupt has had
// time to work: Python can lose a KeyboardInterrupt, for example in a callback of its own.
func (r *runner) interruptAsked() error {
	c, now := r.current, time.Now()
	if c.ended {
		return r.kernel.Interrupt()
	}
	c.interrupt(causeAsked, now)
	if now.Sub(c.interrupted) >= repeatTime {
		c.interrupted = time.Time{} // tick sends another one
	}
	r.tick(now)
	return nil
}

const (
	// drainQuiet without a message ends the reading of what a dead kernel had sent.
	drainQuiet = 100 * time.Millisecond
	drainTime  = 2 * time.Second
	// stopTime bounds the wait for the running execution at shutdown.
	stopTime = 4 * time.Second
)

// died ends all executions that depended on the kernel. What is submitted while the kernel's
// last output is read waits for the next kernel.
func (r *runner) died(ctx context.Context) {
	r.q.loseAll("the kernel ended before this started (" + r.kernel.Reason() + "); its variables are gone")
	r.drain(ctx)
	if r.current != nil {
		if !r.current.ended {
			r.end(r.deathOutcome())
		}
		r.release()
	}
}

// deathOutcome is how the running execution ends with the kernel.
func (r *runner) deathOutcome() (contract.Status, string) {
	switch {
	case r.current.cause == causeShutdown:
		return causeShutdown.status(), causeShutdown.reason()
	case !r.kernel.RestartBegan().IsZero():
		return contract.StatusKernelRestarted, restartReason
	case r.kernel.EndedOnRequest():
		return contract.StatusInterrupted, r.kernel.Reason()
	}
	return contract.StatusKernelDied, "the kernel died: " + r.kernel.Reason() + "; its variables are gone"
}

// drain handles what the kernel had sent before it died.
func (r *runner) drain(ctx context.Context) {
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	quiet := time.NewTimer(drainQuiet)
	defer quiet.Stop()
	for {
		quiet.Reset(drainQuiet)
		select {
		case <-r.kernel.Client.Arrived():
			r.receive(ctx)
		case <-quiet.C:
			return
		case <-limit.C:
			return
		}
	}
}

// restartReason is the reason of an execution that ended as kernel_restarted.
const restartReason = "someone restarted the kernel while this was running; its variables are gone"

// sentAfterRestart reports whether the kernel sent m after a restart began to end it.
// The kernel's own time decides, because m may have waited in the inbox.
func (r *runner) sentAfterRestart(m *jupyter.Message) bool {
	began := r.kernel.RestartBegan()
	if began.IsZero() {
		return false
	}
	sent, err := time.Parse(time.RFC3339Nano, m.Header.Date)
	return err != nil || sent.After(began)
}

// causedByRestart reports whether m shows an effect of the restart rather than of the
// code. Errors do: the KeyboardInterrupt, or what the code makes of it and of the
// processes that the interrupt ended too. So do markers of the relay's own code: an
// iteration that caught the interrupt is not done. All that it confirms later runs
// again in the next kernel, as after any loss of a kernel.
func (r *runner) causedByRestart(m *jupyter.Message) bool {
	switch m.Header.MsgType {
	case jupyter.MsgError:
		return r.sentAfterRestart(m)
	case jupyter.MsgDisplayData:
		var d jupyter.DisplayData
		return r.sentAfterRestart(m) && m.Decode(&d) == nil && isMarker(d)
	}
	return false
}

// isMarker reports whether the relay's own code sent the display to the relay.
func isMarker(d jupyter.DisplayData) bool {
	for mime := range d.Data {
		if strings.HasPrefix(mime, contract.OwnMIME) {
			return true
		}
	}
	return false
}

// cause is why a run is interrupted.
type cause int

const (
	causeNone cause = iota
	causeAsked
	causeDeadline
	causeInputWait
	causeShutdown
)

func (c cause) reason() string {
	switch c {
	case causeAsked:
		return "it was interrupted on request; variables are kept"
	case causeDeadline:
		return "it took longer than its timeout and was interrupted; variables are kept"
	case causeInputWait:
		return fmt.Sprintf("it was interrupted because it waited %s for input; variables are kept", contract.MaxInputWait)
	case causeShutdown:
		return "it was interrupted because the executor shut down; its variables are gone"
	}
	return ""
}

func (c cause) status() contract.Status {
	if c == causeDeadline || c == causeInputWait {
		return contract.StatusTimedOut
	}
	return contract.StatusInterrupted
}

// outcome is the status and reason that follow from the reply and the interrupt.
func (r *run) outcome() (contract.Status, string) {
	switch {
	case r.restarted:
		return contract.StatusKernelRestarted, restartReason
	case r.reply == nil && !r.interrupted.IsZero(): // it came between the code and the reply
		return r.cause.status(), r.cause.reason()
	case r.reply == nil:
		return contract.StatusFailed, "the kernel ended the run without a reply, because it can't encode what the code raised or returned; variables are kept"
	case r.interrupted.IsZero() && r.reply.Status == "ok":
		return contract.StatusSucceeded, ""
	case r.interrupted.IsZero():
		return contract.StatusFailed, ""
	case r.cause == causeAsked && r.reply.Status == "ok":
		return contract.StatusInterrupted, "it was interrupted on request, and the code then ended without an error; variables are kept"
	case r.cause == causeAsked && r.reply.EName != "KeyboardInterrupt" && r.reply.EName != "CancelledError": // the last of code that awaited
		return contract.StatusInterrupted, "it was interrupted on request, and the code then raised an error of its own; variables are kept"
	}
	return r.cause.status(), r.cause.reason()
}

// explain adds to a reason what the disk could not take.
func (r *run) explain(reason string) string {
	var more string
	switch {
	case r.lost.totalBytes > 0:
		more = fmt.Sprintf("%s of its output could not be written to the log: %v", counted(r.lost.totalBytes, "byte"), r.lost.err)
	case r.record.InMemory():
		more = journal.InMemoryReason
	}
	if reason == "" || more == "" {
		return reason + more
	}
	return reason + "; " + more
}
