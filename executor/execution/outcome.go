package execution

import (
	"fmt"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

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

// outcome is the status and reason that follow from the reply and the interrupt.
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

// explain adds to a reason what the disk could not take.
func (r *run) explain(reason string) string {
	var more string
	switch {
	case r.lost.totalBytes > 0:
		more = fmt.Sprintf("%d bytes of its output could not be written to the log: %v", r.lost.totalBytes, r.lost.err)
	case r.record.InMemory():
		more = journal.InMemoryReason
	}
	if reason == "" || more == "" {
		return reason + more
	}
	return reason + "; " + more
}
