package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"colabrelay/executor/job"
	"colabrelay/executor/journal"
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
