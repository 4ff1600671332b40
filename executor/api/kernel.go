package api

import (
	"context"
	"net/http"
	"time"

	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/executor/variables"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// restartTimeout is enough to end one kernel and start the next on a cold disk. It is
// shorter than writeTimeout.
const restartTimeout = 2 * time.Minute

func (a *API) kernelStatus(*parameters) action {
	return func(context.Context) (any, error) { return a.kernelNow(), nil }
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
func (a *API) restartKernel(p *parameters) action {
	var intended contract.KernelRef
	p.body(&intended)
	return func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restartTimeout)
		defer cancel()
		if err := a.Kernel.Restart(ctx, intended.KernelID); err != nil {
			return nil, err
		}
		return a.kernelNow(), nil
	}
}

// probe describes the machine, and the variables of the kernel. loaded_variables is null
// while code runs or there is no kernel.
func (a *API) probe(*parameters) action {
	return func(ctx context.Context) (any, error) {
		out, err := a.Prober.Probe(ctx)
		if err != nil {
			return nil, err
		}
		if k := a.Kernel.Status(); k.Python != "" {
			out.Python.Version, out.Python.IPyKernel = k.Python, k.IPyKernel
		}
		var found contract.Variables
		err = a.onIdleKernel(ctx, func(ctx context.Context, k *kernel.Kernel) (err error) {
			found, err = variables.Variables(ctx, k.Client)
			return err
		})
		if err != nil {
			return out, nil
		}
		out.LoadedVariables, out.LoadedVariablesCount = []string{}, &found.Count
		for _, v := range found.Variables {
			out.LoadedVariables = append(out.LoadedVariables, v.Name)
		}
		return out, nil
	}
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

func (a *API) variables(*parameters) action {
	return func(ctx context.Context) (any, error) {
		var out contract.Variables
		err := a.onIdleKernel(ctx, func(ctx context.Context, k *kernel.Kernel) (err error) {
			out, err = variables.Variables(ctx, k.Client)
			out.KernelID = k.ID
			return err
		})
		return out, err
	}
}

func (a *API) inspect(p *parameters) action {
	name := p.text("name")
	if name == "" || len(name) > maxNameLen {
		p.fail(badRequest("name: must be 1 to %d bytes long", maxNameLen))
	}
	return func(ctx context.Context) (any, error) {
		var out contract.Inspection
		err := a.onIdleKernel(ctx, func(ctx context.Context, k *kernel.Kernel) (err error) {
			out, err = variables.Inspect(ctx, k.Client, name)
			out.KernelID = k.ID
			return err
		})
		return out, err
	}
}

var errOtherKernel = &refusal{
	Code: contract.CodeConflict, Message: "the kernel named in the request no longer exists; nothing was deleted in the current kernel",
	Hint: "Its variables are gone too. Read the kernel's status before you clean up the current kernel.",
}

// cleanup continues if the caller disconnects, so that the next run does not get the
// kernel while variables are still being deleted.
func (a *API) cleanup(p *parameters) action {
	var intended contract.KernelRef
	p.body(&intended)
	return func(ctx context.Context) (any, error) {
		var out contract.Cleanup
		err := a.onIdleKernel(context.WithoutCancel(ctx), func(ctx context.Context, k *kernel.Kernel) error {
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
}

// openHealth answers unsigned GET and HEAD requests of the health path, the only ones open
// to everybody. It passes all others to next, including signed ones, whose answers must be
// sealed.
func (a *API) openHealth(next http.Handler) http.Handler {
	health := a.answer(a.health)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed := len(r.Header[auth.HeaderSignature]) > 0
		if r.URL.Path != contract.PathHealth || (r.Method != http.MethodGet && r.Method != http.MethodHead) || signed {
			next.ServeHTTP(w, r)
			return
		}
		if a.withinUnsigned(w, r) {
			closeUnverified(w, r)
			w.Header().Set("Cache-Control", "no-store")
			health(w, r)
		}
	})
}

// health answers with a few figures, the version and the protocol. Anybody may read them,
// so nothing else belongs here.
func (a *API) health(*parameters) action {
	return func(context.Context) (any, error) {
		mem, err := probe.Memory()
		if err != nil {
			return nil, err
		}
		return contract.Health{
			Status:            "ok",
			UptimeMinutes:     probe.Round(time.Since(a.Started).Minutes(), 1),
			MemoryAvailableGB: probe.InGB(mem.Available),
			MemoryUsedPct:     mem.UsedPct(),
			Version:           a.Version,
			Protocol:          contract.Protocol,
		}, nil
	}
}
