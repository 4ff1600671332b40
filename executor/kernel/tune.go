package kernel

import (
	"context"
	"fmt"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/kernelpy"
)

// iopubLimit is how many messages the kernel holds for a reader that is behind. It is
// no memory taken ahead; the reader drops, and counts, long before that many of a size
// that matters.
const iopubLimit = 200_000

// tune asks a new kernel to hold more outputs. A kernel of another kind that can't is
// as good as one that was not asked.
func (l *Kernel) tune(ctx context.Context) error {
	call := kernelpy.Call{Function: "tune.hold_outputs", Arguments: []any{iopubLimit}, Delivery: kernelpy.Reply}
	_, err := l.Client.Request(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
		Silent:          true,
		UserExpressions: map[string]string{"tune": call.Code(true)},
	})
	if err != nil {
		return fmt.Errorf("tuning the kernel: %w", err)
	}
	return nil
}
