package kernel

import (
	"context"
	"fmt"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/kernelpy"
)

// iopubLimit is how many messages the kernel holds for a reader that is behind. It
// allocates no memory in advance. Of big messages, the reader drops and counts some long
// before that.
const iopubLimit = 200_000

// flushSeconds is how long the kernel collects what is printed without flush. With
// ipykernel's 0.2 s, a line of a long run reached the relay 200 ms late.
const flushSeconds = 0.02

// tune has a new kernel hold more outputs, send prints sooner and show sys.exit without a
// traceback. A kernel of another kind may ignore it.
func (k *Kernel) tune(ctx context.Context) error {
	call := kernelpy.Call{Function: "tune.start", Arguments: []any{iopubLimit, flushSeconds}, Delivery: kernelpy.Reply}
	reply, err := k.Client.Request(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
		Silent:          true,
		UserExpressions: map[string]string{"tune": call.Code(true)},
	})
	if err != nil {
		return fmt.Errorf("tuning the kernel: %w", err)
	}
	reply.Release()
	return nil
}
