package op

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/kernelcall"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// Bounds of what a function in the kernel returns. Its JSON may escape every character beyond
// ASCII.
const (
	maxReport      = 1 << 20 // bytes
	maxReportItems = 10_000  // of one array or object in it
)

// ask calls a function of the Python package in the kernel and returns its report. It waits
// in the queue like a run, and always answers within the call: if the kernel is occupied for
// so long, or the function takes longer than limit or the rest of the call, nothing of it
// remains in the queue.
func (c *call) ask(ctx context.Context, f kernelpy.Call, limit time.Duration) (json.RawMessage, error) {
	c.tellOccupied(ctx)
	report, last, err := kernelcall.Ask(ctx, c.target.Client, f, kernelcall.Options{
		Until: time.Now().Add(c.waitBudget()), Limit: limit, MaxReport: maxReport, MaxItems: map[string]int{"": maxReportItems},
	})
	if last.ExecutionID != "" {
		c.checkKernel(last.KernelID)
		c.warnOfEnd(last.SessionMinutesLeft)
	}
	late, isLate := errors.AsType[*kernelcall.LateError](err)
	switch {
	case isLate && c.person == nil:
		return nil, lateProblem(late.Last)
	case isLate && late.Last.Status == contract.StatusQueued:
		return nil, &contract.Error{Code: contract.CodeKernelBusy, Message: late.Error(), Behind: late.Last.Behind}
	}
	return report, err
}

// tellOccupied tells a person that a run has the kernel, whose end the command waits for.
func (c *call) tellOccupied(ctx context.Context) {
	if c.person == nil {
		return
	}
	if k, err := c.target.Client.Kernel(ctx); err == nil && k.Status == contract.KernelBusy {
		c.step("a run occupies the kernel: waiting for its end")
	}
}

// lateProblem is the problem of a call whose time was over before its run had ended.
func lateProblem(e contract.Execution) *Problem {
	if e.Status != contract.StatusQueued {
		return &Problem{
			Code: string(contract.StatusTimedOut), Message: "it took longer than this call may take and was interrupted",
			Hint: "Ask for less, or do it in run_code_long.",
		}
	}
	p := refusalProblem(&contract.Error{Code: contract.CodeKernelBusy, Behind: e.Behind})
	if client.WaitsForInput(e.Behind) == nil {
		p.Message = "another run occupies the kernel; this call waited, and its place in the queue was given up"
	}
	if b := client.Behind(e); b != nil && client.WaitsForInput(b) == nil {
		p.Message = fmt.Sprintf("run %s occupies the kernel; this call waited, and its place in the queue was given up", b.ExecutionID)
		p.Hint = hint.ForRefusal(&contract.Error{Code: contract.CodeKernelBusy}).Model
	}
	return p
}
