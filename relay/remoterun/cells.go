package remoterun

import (
	"context"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// Cells prints the output of a notebook's cells, which somebody else runs, and passes input on.
type Cells struct{ r *run }

// NewCells returns what prints the output of cells on vm. A caller must close it.
func NewCells(vm VM, console Console) *Cells {
	return &Cells{&run{VM: vm, instance: vm.Client.InstanceID(), out: newPrinter(vm.Client.Blobs, console)}}
}

// Print prints events of an execution, but no prompts: those are for Answer. It warns once if
// the kernel is a new one.
func (c *Cells) Print(ctx context.Context, executionID, kernelID string, events []contract.Event) {
	if kernelID != c.r.exec.KernelID {
		c.r.checkKernel(kernelID)
		c.r.exec.KernelID = kernelID
	}
	for _, ev := range events {
		if ev.Type != contract.EventInputRequest {
			c.r.out.event(ctx, executionID, ev)
		}
	}
}

// Broken returns the error of a write to stdout; after it nothing more is printed.
func (c *Cells) Broken() error { return c.r.out.broken }

// Note prints a message of the relay's own on a line of its own.
func (c *Cells) Note(format string, args ...any) { c.r.out.note(format, args...) }

// Close leaves a terminal without colours and with the cursor at the beginning of a line.
func (c *Cells) Close() { c.r.out.finish() }

// Answer shows the prompt of an execution that waits for input, and passes a line from the
// person or from stdin on, or that stdin has none.
func (c *Cells) Answer(ctx context.Context, executionID string, prompt contract.Event) error {
	c.r.answer.ExecutionID = executionID
	c.r.exec.Status = contract.StatusWaitingForInput
	c.r.out.event(ctx, executionID, prompt)
	return c.r.input(ctx)
}

// CellError returns the error of a cell that raised an exception whose traceback was printed: an
// ExitCode of sys.exit, nil for sys.exit(0), and otherwise ErrPrinted.
func CellError(ename, evalue string) error {
	return exception(&contract.ExecutionError{EName: ename, EValue: plain.Line(evalue)})
}
