package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"colabrelay/executor/comm"
	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// run is what the runner knows of an execution that was sent to the kernel.
type run struct {
	record *journal.Record
	source *waiter
	msgID  string
	log    *slog.Logger

	lastReceived func() time.Time // when bytes last arrived from the kernel
	accepted     bool             // the kernel has started the code
	reply        *jupyter.ExecuteReply
	repliedAt    time.Time
	idle         bool
	idleAt       time.Time
	ended        bool // for its readers; it may still have the kernel
	restarted    bool // the reply shows only that a restart ended the code

	deadline     time.Time
	cause        cause     // why it is to be interrupted
	askedAt      time.Time // when the interrupt was asked for
	interrupted  time.Time // when SIGINT was sent
	wakeAt       time.Time // when the next request is due that wakes the kernel; see wake
	woken        int       // how many were sent after the last interrupt
	inputRequest *jupyter.Message
	inputSince   time.Time
	prompt       prompt // of inputRequest

	joined  joinedText
	lost    lostOutput
	widgets *comm.Board // of the kernel

	clearNext bool // the next output clears those before it
	// displayed is the last error on iopub. IPython 9 handles what the display of a value raises,
	// and then replies with the error that there is not any more: NoneType.
	displayed *contract.ExecutionError
}

// start marks the execution as running and returns its timeout.
func start(record *journal.Record, kernelID string, now time.Time) (timeout time.Duration, err error) {
	err = record.Update(func(x *contract.Execution) {
		at := now.UTC()
		x.Status, x.StartedAt, x.KernelID, x.QueuePosition, x.Behind = contract.StatusRunning, &at, kernelID, 0, nil
		timeout = time.Duration(x.TimeoutSeconds * float64(time.Second))
	})
	return timeout, err
}

// accept marks the code as started: from now on SIGINT interrupts it. The next update saves
// the count: a kill before that ends the kernel too, and then the number names nothing.
func (r *run) accept(m *jupyter.Message) {
	r.accepted = true
	var input struct {
		ExecutionCount int `json:"execution_count"`
	}
	if m.Decode(&input) == nil {
		r.record.UpdateInMemory(func(x *contract.Execution) { r.setCount(x, input.ExecutionCount) })
	}
}

func (r *run) status(m *jupyter.Message) {
	var s jupyter.Status
	if m.Decode(&s) == nil && s.ExecutionState == "idle" {
		r.idle, r.idleAt = true, time.Now()
	}
}

// result adds what the reply says of the outcome. Finish saves it.
func (r *run) result(reply *jupyter.ExecuteReply) {
	r.record.UpdateInMemory(func(x *contract.Execution) {
		r.setCount(x, reply.ExecutionCount)
		if reply.Status == "error" {
			bounded, _ := boundError(reply.EName, reply.EValue, reply.Traceback)
			x.Error = &bounded
			if reply.EName == "NoneType" && r.displayed != nil {
				x.Error = r.displayed
			}
		}
	})
}

// setCount sets the kernel's In[n]. An unstored run has none: the kernel reports the
// number of another one.
func (r *run) setCount(x *contract.Execution, n int) {
	if !r.record.Unstored {
		x.ExecutionCount = max(x.ExecutionCount, n)
	}
}

// hugeReply replaces a reply that is over the bound of one message. ipykernel reports
// the outcome in the metadata too.
func hugeReply(m *jupyter.Message) jupyter.ExecuteReply {
	var meta struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(m.Metadata, &meta) == nil && meta.Status == "ok" {
		return jupyter.ExecuteReply{Status: "ok"}
	}
	return jupyter.ExecuteReply{
		Status: "error", EName: "HugeError",
		EValue: fmt.Sprintf("the error that the code raised has %d bytes, which is too much to keep", m.Cut),
	}
}

// interrupt asks for a SIGINT, which tick sends. Only the first cause counts.
func (r *run) interrupt(why cause, now time.Time) {
	if r.cause == causeNone {
		r.cause, r.askedAt = why, now
	}
}

// command is a request to the runner, the only goroutine that touches the running
// execution.
type command struct {
	id     string
	do     func(*runner) error
	answer chan error // buffered
}

// errNotCurrent means that the execution does not have the kernel.
var errNotCurrent = errors.New("the execution does not have the kernel")

// Interrupt cancels a waiting execution or interrupts a running one, and returns it
// when the interrupt took effect, or after yieldTime. A run that still has the kernel is
// interrupted again, unless its last interrupt is younger than repeatTime. The error is
// ErrFinished if there is nothing to interrupt.
func (q *Queue) Interrupt(ctx context.Context, id string) (contract.Execution, error) {
	record, err := q.journal.Find(id)
	if err != nil {
		return contract.Execution{}, err
	}
	if q.cancel(id) {
		return record.Snapshot(), nil
	}
	err = q.send(ctx, id, (*runner).interruptAsked)
	if errors.Is(err, errNotCurrent) {
		err = ErrFinished
	}
	if err != nil {
		return contract.Execution{}, err
	}
	return q.journal.Read(ctx, id, journal.ReadRequest{Wait: yieldTime, UntilEnd: true, NoEvents: true})
}

// Input answers the input() call that the execution waits in. The error is ErrNotWaiting
// if it does not wait in one, ErrOtherPrompt if it waits in another one than in.Offset names,
// and ErrPassword if it asks for a password and in does not say that it is one.
func (q *Queue) Input(ctx context.Context, id string, in contract.Input) error {
	attempt := id + " " + in.InputID
	if last := q.lastInput.Load(); in.InputID != "" && last != nil && *last == attempt {
		return nil // the answer to an earlier attempt was lost
	}
	record, err := q.journal.Find(id)
	if err != nil {
		return err
	}
	if record.Snapshot().Status.Finished() {
		return ErrFinished
	}
	err = q.send(ctx, id, func(r *runner) error {
		defer q.runningChanged(r.current.prompt)
		err := r.current.answerInput(ctx, r.kernel.Client, in)
		if err == nil {
			q.lastInput.Store(&attempt)
		}
		return err
	})
	if errors.Is(err, errNotCurrent) {
		err = ErrNotWaiting
	}
	return err
}

// send has the runner do something with the execution that has the kernel.
func (q *Queue) send(ctx context.Context, id string, do func(*runner) error) error {
	c := command{id: id, do: do, answer: make(chan error, 1)}
	select {
	case q.commands <- c:
	case <-q.stopped:
		return ErrShuttingDown
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-c.answer
}

// noOffset is the offset of a prompt whose event could not be written.
const noOffset = -1

// prompt is what an input() call asks.
type prompt struct {
	offset   int64 // of its event, or noOffset
	text     string
	password bool
}

func (r *run) requestInput(m *jupyter.Message, now time.Time) {
	var request jupyter.InputRequest
	if err := m.Decode(&request); err != nil {
		r.log.Warn("decoding an input_request", "execution_id", r.record.ID, "err", err)
	}
	r.flush(now)
	var omitted cuts
	if n := len(request.Prompt) - contract.MaxStreamEvent; n > 0 {
		omitted.add("%s of the prompt", counted(n, "byte"))
	}
	r.prompt = prompt{offset: noOffset, text: journal.Shorten(request.Prompt, contract.MaxStreamEvent), password: request.Password}
	if r.emit(contract.Event{
		Time: now.UTC(), Type: contract.EventInputRequest,
		Prompt: r.prompt.text, Password: request.Password, Cut: omitted.String(),
	}) {
		r.prompt.offset = r.record.Snapshot().NextOffset - 1 // only the runner writes events
	}
	r.inputRequest, r.inputSince = m.Parent(), now
	_ = r.record.Update(func(x *contract.Execution) { x.Status = contract.StatusWaitingForInput })
}

// answerInput lets the code continue. The deadline moves by the time that it waited.
func (r *run) answerInput(ctx context.Context, client *jupyter.Client, in contract.Input) error {
	switch {
	case r.inputRequest == nil:
		return ErrNotWaiting
	case in.Offset != nil && *in.Offset != r.prompt.offset:
		return ErrOtherPrompt
	case r.prompt.password && !in.Password:
		return ErrPassword
	}
	if err := client.Reply(ctx, r.inputRequest, jupyter.MsgInputReply, jupyter.InputReply{Value: in.Text}); err != nil {
		return fmt.Errorf("sending the input: %w", err)
	}
	r.inputAnswered(time.Now())
	return nil
}

func (r *run) inputAnswered(now time.Time) {
	r.deadline = r.deadline.Add(now.Sub(r.inputSince))
	r.inputRequest = nil
	_ = r.record.Update(func(x *contract.Execution) { x.Status = contract.StatusRunning })
}

// msgColabRequest is what google.colab's front-end calls send on iopub. They then wait
// on stdin for a page that our kernel does not have: userdata.get for 10 s, drive.mount
// for 120 s, files.upload and eval_js for ever.
const msgColabRequest = "colab_request"

// colabReply is the answer that they expect.
type colabReply struct {
	Type  string          `json:"type"`
	MsgID json.RawMessage `json:"colab_msg_id"`
	Error string          `json:"error"`
}

// answerColab answers a front-end call with an error that says what to do instead.
func answerColab(ctx context.Context, client *jupyter.Client, m *jupyter.Message) {
	var meta struct {
		MsgID json.RawMessage `json:"colab_msg_id"`
		Type  string          `json:"colab_request_type"`
	}
	if json.Unmarshal(m.Metadata, &meta) != nil || len(meta.MsgID) == 0 {
		return // expects no answer
	}
	// If this fails, the caller waits as it would without us.
	_ = client.Reply(ctx, m, jupyter.MsgInputReply, jupyter.InputReply{Value: colabReply{
		Type:  "colab_reply",
		MsgID: meta.MsgID,
		Error: fmt.Sprintf("%s needs the Colab page, to which this kernel is not connected: run it in a notebook cell "+
			"before the executor starts (secrets: set os.environ there; Drive: call drive.mount there, then use /content/drive here)",
			journal.Shorten(meta.Type, 100)),
	}})
}

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
	return r.current != nil || shows || r.q.journal.NeedsFlush() ||
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
