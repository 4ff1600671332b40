package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"colabrelay/executor/job"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/executor/variables"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

const defaultListLimit = 100

// submit queues an execution and waits until it finishes, requests input or wait_seconds
// have passed, so that quick code takes one round trip. The execution continues if the
// caller disconnects.
func (a *API) submit(p *parameters) action {
	var s contract.Submit
	p.body(&s)
	wait, after := p.checkSubmit(s)
	return func(ctx context.Context) (any, error) {
		id, err := a.submitAudited(p.r, s)
		if err != nil {
			return nil, err
		}
		return a.withSessionEnd(a.Journal.Read(ctx, id, journal.ReadRequest{
			Wait: wait, UntilEnd: true, BehindInput: s.BehindInput, EventsAfter: after,
		}))
	}
}

// checkSubmit checks s against the contract's bounds.
func (p *parameters) checkSubmit(s contract.Submit) (wait, outputAfter time.Duration) {
	switch {
	case !contract.RequestIDPattern().MatchString(s.RequestID):
		p.fail(badRequest("request_id: must be 1 to %d characters of A-Z a-z 0-9 . _ -", contract.MaxRequestIDLen))
	case strings.TrimSpace(s.Code) == "":
		p.fail(badRequest("code: must not be empty"))
	case strings.ContainsRune(s.Code, 0):
		p.fail(badRequest("code: contains a NUL character, which Python does not accept"))
	}
	p.seconds("timeout_seconds", s.TimeoutSeconds, contract.MaxTimeout)
	outputAfter = p.seconds("output_after_seconds", s.OutputAfterSeconds, contract.MaxWait)
	return p.waitFor(s.WaitSeconds), outputAfter
}

func (a *API) readExecution(p *parameters) action {
	id := p.id(journal.ErrNotFound)
	read := journal.ReadRequest{
		Offset:   p.number("offset", 0, 0, math.MaxInt64),
		MaxBytes: p.number("max_bytes", contract.DefaultReadBytes, 1, contract.MaxReadBytes),
		Wait:     p.wait(),

		BehindInput: p.flag(contract.QueryBehindInput),
	}
	return func(ctx context.Context) (any, error) { return a.withSessionEnd(a.Journal.Read(ctx, id, read)) }
}

func (a *API) listExecutions(p *parameters) action {
	limit := p.number("limit", defaultListLimit, 1, contract.MaxListExecutions)
	return func(context.Context) (any, error) {
		return contract.ExecutionList{Executions: a.Journal.List(int(limit))}, nil
	}
}

func (a *API) interruptExecution(p *parameters) action {
	id := p.id(journal.ErrNotFound)
	p.waits = true // the kernel may need 10 s to stop
	return func(ctx context.Context) (any, error) { return a.withSessionEnd(a.Queue.Interrupt(ctx, id)) }
}

// giveInput answers a waiting input() and returns the state of the execution.
func (a *API) giveInput(p *parameters) action {
	id := p.id(journal.ErrNotFound)
	var in contract.Input
	p.body(&in)
	switch {
	case in.Offset != nil && *in.Offset < 0:
		p.fail(badRequest("offset: must not be negative"))
	case len(in.InputID) > 64:
		p.fail(badRequest("input_id: must have at most 64 bytes"))
	}
	return func(ctx context.Context) (any, error) {
		if err := a.Queue.Input(ctx, id, in); err != nil {
			return nil, err
		}
		return a.withSessionEnd(a.Journal.Read(ctx, id, journal.ReadRequest{NoEvents: true}))
	}
}

// blob serves a part of a large payload: length bytes, or fewer at its end.
func (a *API) blob(p *parameters) action {
	id := p.id(journal.ErrNotFound)
	number, err := strconv.Atoi(chi.URLParam(p.r, "number"))
	if err != nil || number < 1 || number > contract.MaxBlobs {
		p.fail(journal.ErrNoBlob)
	}
	offset := p.number("offset", 0, 0, math.MaxInt64)
	length := p.number("length", contract.MaxBlobPart, 1, contract.MaxBlobPart)
	return func(context.Context) (any, error) {
		f, err := a.Journal.Blob(id, number)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("reading a blob: %w", err)
		}
		part := make([]byte, max(0, min(length, info.Size()-offset)))
		if _, err := f.ReadAt(part, offset); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading a blob: %w", err)
		}
		return part, nil
	}
}

// idPattern matches the ids that the executor makes. Any other id is answered as unknown
// without further processing.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// submitJob accepts a job, which runs by itself, and answers at once.
func (a *API) submitJob(p *parameters) action {
	var s contract.JobSubmit
	p.body(&s)
	return func(context.Context) (any, error) { return a.Jobs.Submit(callerOf(p.r).String(), s) }
}

func (a *API) readJob(p *parameters) action {
	id, from, wait := p.id(job.ErrNotFound), p.number("from", 0, 0, math.MaxInt32), p.wait()
	return func(ctx context.Context) (any, error) { return a.Jobs.Read(ctx, id, int(from), wait) }
}

func (a *API) patchJob(p *parameters) action {
	id := p.id(job.ErrNotFound)
	var patch contract.JobPatch
	p.body(&patch)
	return func(context.Context) (any, error) { return a.Jobs.Patch(id, patch) }
}

// deleteJob ends a job. With interrupt, it waits for the end of the execution that runs, for
// which the kernel may need 10 s.
func (a *API) deleteJob(p *parameters) action {
	id, interrupt := p.id(job.ErrNotFound), p.flag("interrupt")
	p.waits = interrupt
	return func(ctx context.Context) (any, error) { return a.Jobs.Delete(ctx, id, interrupt) }
}

// withSessionEnd adds the remaining time of the VM's session to an execution, so that a
// caller can save results in time. The remaining time is determined after the wait, because
// the executor may have shut down while the caller waited.
func (a *API) withSessionEnd(x contract.Execution, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	x.SessionMinutesLeft = a.sessionMinutesLeft()
	return x, nil
}

func (a *API) sessionMinutesLeft() *float64 {
	select {
	case <-a.Ending:
		return new(float64)
	default:
		return a.Prober.SessionMinutesLeft()
	}
}

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
	health := a.answer(contract.PathHealth, a.health)
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
