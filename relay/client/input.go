package client

import (
	"context"

	"colabrelay/shared/contract"
)

// Input answers a waiting input() and returns the run as it is then, without events.
//
// Without in.Offset a repeated request could answer the next prompt, so the call is retried
// only after attempts that certainly were not sent. With in.Offset the executor refuses a
// repeated one, so the call is retried until ctx ends. A conflict after an attempt that may
// have arrived then means that the prompt is answered, almost certainly by that attempt:
// Input returns the run and no error.
func (c *Client) Input(ctx context.Context, id string, in contract.Input) (contract.Execution, error) {
	path, err := executionPath(contract.PathInput, id)
	if err != nil {
		return contract.Execution{}, err
	}
	build := c.post(path, encode(in))
	if in.Offset == nil {
		return c.execution(ctx, ifUnsent, build)
	}
	arrived := false
	x, err := c.execution(ctx, func(err error, bad int) bool {
		arrived = arrived || mayHaveArrived(err)
		return idempotent(err, bad)
	}, build)
	if refused := refusal(err); arrived && refused != nil && refused.Code == contract.CodeConflict {
		x, err = c.Execution(ctx, id, *in.Offset+1, 0, 1)
		x.Events = nil
	}
	return x, err
}
