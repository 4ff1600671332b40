package api

import (
	"context"
	"net/http"
	"time"

	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/executor/variables"
	"colabrelay/shared/contract"
)

const (
	// idleKernelTimeout bounds work inside an idle kernel: a __del__ that never returns
	// must not hold the queue for ever.
	idleKernelTimeout = 60 * time.Second
	maxNameLen        = 1000 // bytes of a variable's name
)

// onIdleKernel runs f on the idle kernel; kernel_busy at once when a run has it.
func (a *API) onIdleKernel(ctx context.Context, f func(ctx context.Context, life *kernel.Kernel) error) error {
	ctx, cancel := context.WithTimeout(ctx, idleKernelTimeout)
	defer cancel()
	return a.Queue.WithIdleKernel(ctx, f)
}

func (a *API) variables(r *http.Request) (any, error) {
	var out contract.Variables
	err := a.onIdleKernel(r.Context(), func(ctx context.Context, life *kernel.Kernel) (err error) {
		out, err = variables.Variables(ctx, life.Client)
		out.KernelID = life.ID
		return err
	})
	return out, err
}

func (a *API) inspect(r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	if name == "" || len(name) > maxNameLen {
		return nil, badRequest("name: want 1 to %d bytes", maxNameLen)
	}
	var out contract.Inspection
	err := a.onIdleKernel(r.Context(), func(ctx context.Context, life *kernel.Kernel) (err error) {
		out, err = variables.Inspect(ctx, life.Client, name)
		out.KernelID = life.ID
		return err
	})
	return out, err
}

var errOtherKernel = &refusal{
	Code: contract.CodeConflict, Message: "the kernel that was meant is gone; nothing was deleted in the current one",
	Hint: "its variables went with it; ask for the kernel again before you clean up the current one",
}

// cleanup goes on when the caller goes away, so that the kernel is not given to the
// next run while it is still deleting.
func (a *API) cleanup(r *http.Request) (any, error) {
	var meant contract.KernelRef
	if err := decode(r, &meant); err != nil {
		return nil, err
	}
	var out contract.Cleanup
	err := a.onIdleKernel(context.WithoutCancel(r.Context()), func(ctx context.Context, life *kernel.Kernel) error {
		if life.ID != meant.KernelID {
			return errOtherKernel
		}
		before, err := probe.Memory()
		if err != nil {
			return err
		}
		if out, err = variables.Cleanup(ctx, life.Client); err != nil {
			return err
		}
		after, err := probe.Memory()
		out.KernelID = life.ID
		out.MemoryBeforeBytes, out.MemoryAfterBytes, out.MemoryFreeBytes = before.Used, after.Used, after.Available
		return err
	})
	return out, err
}
