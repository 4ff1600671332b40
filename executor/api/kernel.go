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

// restartTimeout is enough to end one kernel and start the next on a cold disk. It is
// shorter than writeTimeout.
const restartTimeout = 2 * time.Minute

func (a *API) kernelStatus(*http.Request) (any, error) {
	return a.kernelNow(), nil
}

// kernelNow is the kernel's status. Only the queue knows whether the kernel runs code.
func (a *API) kernelNow() contract.Kernel {
	k := a.Kernel.Status()
	if k.Status == contract.KernelIdle && a.Queue.Busy() {
		k.Status = contract.KernelBusy
	}
	return k
}

// restartKernel continues if the caller disconnects, because half a restart is useless. If
// the request names an earlier kernel, that one has been replaced already, or is being
// replaced: the answer is then its successor.
func (a *API) restartKernel(r *http.Request) (any, error) {
	var intended contract.KernelRef
	if err := decode(r, &intended); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), restartTimeout)
	defer cancel()
	if err := a.Kernel.Restart(ctx, intended.KernelID); err != nil {
		return nil, err
	}
	return a.kernelNow(), nil
}

// probe describes the machine, and the variables of the kernel. loaded_variables is null
// while code runs or there is no kernel.
func (a *API) probe(r *http.Request) (any, error) {
	out, err := a.Prober.Probe(r.Context())
	if err != nil {
		return nil, err
	}
	if k := a.Kernel.Status(); k.Python != "" {
		out.Python.Version, out.Python.IPyKernel = k.Python, k.IPyKernel
	}
	names := []string{}
	err = a.onIdleKernel(r.Context(), func(ctx context.Context, k *kernel.Kernel) error {
		found, err := variables.Variables(ctx, k.Client)
		for _, v := range found.Variables {
			names = append(names, v.Name)
		}
		out.LoadedVariablesCount = &found.Count
		return err
	})
	if err != nil {
		out.LoadedVariables, out.LoadedVariablesCount = nil, nil
		return out, nil
	}
	out.LoadedVariables = names
	return out, nil
}

const (
	// idleKernelTimeout limits work in an idle kernel, because a __del__ that never returns
	// must not block the queue for ever.
	idleKernelTimeout = 60 * time.Second
	maxNameLen        = 1000 // bytes of a variable's name
)

// onIdleKernel runs f on the idle kernel, between two executions. It fails with kernel_busy
// while one execution occupies the kernel for long.
func (a *API) onIdleKernel(ctx context.Context, f func(ctx context.Context, k *kernel.Kernel) error) error {
	ctx, cancel := context.WithTimeout(ctx, idleKernelTimeout)
	defer cancel()
	return a.Queue.WithIdleKernel(ctx, f)
}

func (a *API) variables(r *http.Request) (any, error) {
	var out contract.Variables
	err := a.onIdleKernel(r.Context(), func(ctx context.Context, k *kernel.Kernel) (err error) {
		out, err = variables.Variables(ctx, k.Client)
		out.KernelID = k.ID
		return err
	})
	return out, err
}

func (a *API) inspect(r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	if name == "" || len(name) > maxNameLen {
		return nil, badRequest("name: must be 1 to %d bytes long", maxNameLen)
	}
	var out contract.Inspection
	err := a.onIdleKernel(r.Context(), func(ctx context.Context, k *kernel.Kernel) (err error) {
		out, err = variables.Inspect(ctx, k.Client, name)
		out.KernelID = k.ID
		return err
	})
	return out, err
}

var errOtherKernel = &refusal{
	Code: contract.CodeConflict, Message: "the kernel named in the request no longer exists; nothing was deleted in the current kernel",
	Hint: "Its variables are gone too. Read the kernel's status before you clean up the current kernel.",
}

// cleanup continues if the caller disconnects, so that the next run does not get the
// kernel while variables are still being deleted.
func (a *API) cleanup(r *http.Request) (any, error) {
	var intended contract.KernelRef
	if err := decode(r, &intended); err != nil {
		return nil, err
	}
	var out contract.Cleanup
	err := a.onIdleKernel(context.WithoutCancel(r.Context()), func(ctx context.Context, k *kernel.Kernel) error {
		if k.ID != intended.KernelID {
			return errOtherKernel
		}
		before, err := probe.Memory()
		if err != nil {
			return err
		}
		if out, err = variables.Cleanup(ctx, k.Client); err != nil {
			return err
		}
		after, err := probe.Memory()
		out.KernelID = k.ID
		out.MemoryBeforeBytes, out.MemoryAfterBytes, out.MemoryFreeBytes = before.Used, after.Used, after.Available
		return err
	})
	return out, err
}
