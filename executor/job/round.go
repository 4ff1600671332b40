package job

import (
	"slices"

	"github.com/google/uuid"

	"colabrelay/shared/contract"
)

// round is a round of a loop that has begun. A job may have 100,000, so it takes 17 bytes.
type round struct {
	execution uuid.UUID
	status    byte // index in roundStatuses
}

// roundStatuses are those that a round may have.
var roundStatuses = []contract.Status{
	contract.StatusRunning, contract.StatusSucceeded, contract.StatusFailed, contract.StatusTimedOut, contract.StatusInterrupted,
	contract.StatusCancelled, contract.StatusKernelDied, contract.StatusKernelRestarted, contract.StatusLost,
}

func newRound(executionID string) round {
	id, _ := uuid.Parse(executionID) // the journal's ids are UUIDs
	return round{execution: id}
}

// statusNumber is the index of a status. An unknown one counts as lost.
func statusNumber(s contract.Status) byte {
	if i := slices.Index(roundStatuses, s); i >= 0 {
		return byte(i)
	}
	return byte(len(roundStatuses) - 1)
}

func (r round) entry() contract.JobEntry {
	e := contract.JobEntry{Status: contract.StepStatus(roundStatuses[r.status])}
	if r.execution != uuid.Nil {
		e.ExecutionID = r.execution.String()
	}
	return e
}
