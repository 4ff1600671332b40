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
