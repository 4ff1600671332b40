package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// run is what the runner knows of one execution while its kernel lives.
type run struct {
	entry *entry
	msgID string
	log   *slog.Logger

	heard     func() time.Time // when bytes last came from the kernel
	accepted  bool             // the kernel said it began
	reply     *jupyter.ExecuteReply
	repliedAt time.Time
	idle      bool
	idleAt    time.Time
	ended     bool // for its readers; it may still have the kernel
	restarted bool // the reply only says that a restart ended the code

	deadline     time.Time
	cause        cause     // why it is to be interrupted
	wantedAt     time.Time // when the interrupt was asked for
	interrupted  time.Time // when SIGINT was sent
	inputRequest *jupyter.Message
	inputSince   time.Time

	joined  joined
	missing missing
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
		return "interrupted on request; variables are kept"
	case causeDeadline:
		return "its deadline passed and it was interrupted; variables are kept"
	case causeInputWait:
		return fmt.Sprintf("it waited %s for input and was interrupted; variables are kept", contract.MaxInputWait)
	case causeShutdown:
		return "interrupted because the executor shut down; variables are gone"
	}
	return ""
}

func (c cause) status() contract.Status {
	if c == causeDeadline || c == causeInputWait {
		return contract.StatusTimedOut
	}
	return contract.StatusInterrupted
}

// start notes that e begins and returns what to run. The code is not kept longer.
func (e *entry) start(kernelID string, now time.Time) (code string, timeout time.Duration, err error) {
	err = e.update(func(x *contract.Execution) {
		at := now.UTC()
		x.Status, x.StartedAt, x.KernelID, x.QueuePosition = contract.StatusRunning, &at, kernelID, 0
		timeout = time.Duration(x.TimeoutSeconds * float64(time.Second))
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	code, e.code = e.code, ""
	return code, timeout, err
}

// usedBefore notes the machine's memory at the start. It is written down with the
// next change.
func (e *entry) usedBefore(bytes uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now.MemoryBeforeBytes = bytes
}

// result notes what the kernel's reply says of the outcome.
func (e *entry) result(reply *jupyter.ExecuteReply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counted(&e.now, reply.ExecutionCount)
	if reply.Status == "error" {
		bounded, _ := boundError(reply.EName, reply.EValue, reply.Traceback)
		e.now.Error = &bounded
	}
}

// counted notes the kernel's In[n]. An unstored run has none: the kernel tells it
// the number of a neighbour.
func (e *entry) counted(x *contract.Execution, n int) {
	if !e.unstored {
		x.ExecutionCount = max(x.ExecutionCount, n)
	}
}

// hugeReply stands for a reply over the bound of one message. ipykernel tells the
// outcome in the metadata too.
func hugeReply(m *jupyter.Message) jupyter.ExecuteReply {
	var meta struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(m.Metadata, &meta) == nil && meta.Status == "ok" {
		return jupyter.ExecuteReply{Status: "ok"}
	}
	return jupyter.ExecuteReply{
		Status: "error", EName: "HugeError",
		EValue: fmt.Sprintf("the error that the code raised takes %d bytes, too many to be kept", m.Cut),
	}
}

// outcome is the status that reply and interrupt together mean.
func (r *run) outcome() (contract.Status, string) {
	switch {
	case r.restarted:
		return contract.StatusKernelRestarted, restartReason
	case r.reply == nil:
		return contract.StatusFailed, "the kernel ended the run without a reply: what it raised or returned can't be written as a message; variables are kept"
	case r.interrupted.IsZero() && r.reply.Status == "ok":
		return contract.StatusSucceeded, ""
	case r.interrupted.IsZero():
		return contract.StatusFailed, ""
	case r.cause == causeDeadline || r.cause == causeInputWait:
		return r.cause.status(), r.cause.reason()
	case r.reply.Status == "ok":
		return contract.StatusSucceeded, "an interrupt was sent; the code ended without an error all the same"
	case r.reply.EName == "KeyboardInterrupt":
		return r.cause.status(), r.cause.reason()
	}
	return contract.StatusFailed, "an interrupt was sent; the code raised another error"
}

func (r *run) status(m *jupyter.Message) {
	var s jupyter.Status
	if m.Decode(&s) == nil && s.ExecutionState == "idle" {
		r.idle, r.idleAt = true, time.Now()
	}
}

// accept notes that the kernel began: from now on SIGINT interrupts the code.
func (r *run) accept(m *jupyter.Message) {
	r.accepted = true
	var input struct {
		ExecutionCount int `json:"execution_count"`
	}
	if m.Decode(&input) == nil {
		_ = r.entry.update(func(x *contract.Execution) { r.entry.counted(x, input.ExecutionCount) })
	}
}

// interrupt asks for a SIGINT; tick sends it. A second cause changes nothing.
func (r *run) interrupt(why cause, now time.Time) {
	if r.cause == causeNone {
		r.cause, r.wantedAt = why, now
	}
}

func (r *run) askInput(m *jupyter.Message, now time.Time) {
	var request jupyter.InputRequest
	if err := m.Decode(&request); err != nil {
		r.log.Warn("an input_request can't be read", "component", "execution", "execution_id", r.entry.id, "err", err)
	}
	r.flush(now)
	var left cuts
	if n := len(request.Prompt) - contract.MaxStreamEvent; n > 0 {
		left.add("%d bytes of the prompt", n)
	}
	r.emit(contract.Event{
		Time: now.UTC(), Type: contract.EventInputRequest,
		Prompt: cut(request.Prompt, contract.MaxStreamEvent), Password: request.Password, Cut: left.String(),
	})
	r.inputRequest, r.inputSince = m.Keep(), now
	_ = r.entry.update(func(x *contract.Execution) { x.Status = contract.StatusWaitingForInput })
}

// answerInput continues the code. The deadline moves by the time it waited.
func (r *run) answerInput(ctx context.Context, client *jupyter.Client, text string) error {
	if r.inputRequest == nil {
		return ErrNotWaiting
	}
	if err := client.Reply(ctx, r.inputRequest, jupyter.MsgInputReply, jupyter.InputReply{Value: text}); err != nil {
		return fmt.Errorf("sending the input: %w", err)
	}
	r.inputAnswered(time.Now())
	return nil
}

func (r *run) inputAnswered(now time.Time) {
	r.deadline = r.deadline.Add(now.Sub(r.inputSince))
	r.inputRequest = nil
	_ = r.entry.update(func(x *contract.Execution) { x.Status = contract.StatusRunning })
}

// explain adds to a reason what its reader must know besides.
func (r *run) explain(reason string) string {
	if r.missing.everBytes == 0 {
		if !r.entry.keptInMemory() {
			return reason
		}
		if reason == "" {
			return diskFullNote
		}
		return reason + "; " + diskFullNote
	}
	lost := fmt.Sprintf("%d bytes of its output could not be written to the log: %v", r.missing.everBytes, r.missing.err)
	if reason == "" {
		return lost
	}
	return reason + "; " + lost
}
