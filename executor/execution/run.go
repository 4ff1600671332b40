package execution

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"colabrelay/executor/comm"
	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// run is what the runner knows of an execution that was sent to the kernel.
type run struct {
	record *journal.Record
	member *member // whose execution it is; nil if it was submitted by itself
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
