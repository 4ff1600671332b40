package client

import (
	"context"

	"colabrelay/shared/contract"
)

// Recorder is told of the executions that a Client submits or reads, after the executor's
// answer was verified, cleaned and bounded. It is told nothing of answers that failed.
//
// Its methods may be called concurrently. They must return at once, because a caller waits for
// the answer, and must not change what they get. instanceID is the executor that answered.
// Everything but a Submit comes from the executor: names and numbers may be invented.
type Recorder interface {
	// Submitted reports that the executor accepted s. The answer e has the events from 0 on,
	// as far as they exist. A repeated submit is reported again.
	Submitted(instanceID string, s contract.Submit, e contract.Execution)
	// Answered reports an answer about one execution, with events or without. The answer to
	// a List is not reported.
	Answered(instanceID string, e contract.Execution)
	// Fetched reports the verified bytes of a blob of at most contract.MaxBlobPart.
	Fetched(instanceID, executionID string, blob contract.Blob, content []byte)
}

// execution makes a call that answers with one execution, and reports the answer.
func (c *Client) execution(ctx context.Context, again policy, build func() request) (contract.Execution, error) {
	a := &attempts{client: c, build: build}
	e, err := finishHeld[contract.Execution](ctx, a, again)
	if err == nil && c.recorder != nil {
		c.recorder.Answered(a.answered.ID, e)
	}
	return e, err
}
