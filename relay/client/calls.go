package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// Every call returns a *contract.Error if the executor refused it, and an *Error if no
// executor answered. Calls that only read, Interrupt, RestartKernel and Input with an offset
// are retried until ctx ends; others that change something only after attempts that certainly
// were not sent. Calls that change something are intended for the executor that answered last
// when they started. Another executor refuses them with new_instance, which they return; only
// submits and the starts of uploads continue there automatically.

// Health requests the executor's health once, neither signed nor sealed. Unlike a signed call,
// it proves nothing about the secret.
func (c *Client) Health(ctx context.Context) (contract.Health, error) {
	var health contract.Health
	ctx, timer := startStallTimer(ctx, c.timeouts.answer)
	defer timer.stop()
	res, err := c.transport.RoundTrip(c.newRequest(ctx, request{method: http.MethodGet, path: contract.PathHealth}))
	if err != nil {
		return health, c.transportError(ctx, err, false)
	}
	defer res.Body.Close()
	timer.progress(c.timeouts.stall)
	page, err := io.ReadAll(io.LimitReader(progressReader{res.Body, timer, c.timeouts.stall}, maxErrorPage))
	if err != nil {
		return health, c.transportError(ctx, err, false)
	}
	if res.StatusCode != http.StatusOK || json.Unmarshal(page, &health) != nil || health.Status != "ok" {
		return contract.Health{}, c.unverified(res, page, nil)
	}
	clean(&health)
	health.Version = release(health.Version)
	if health.Protocol != contract.Protocol {
		return health, otherProtocol(health.Protocol)
	}
	return health, nil
}

// SignedHealth requests the executor's health by a sealed call. Use it for
// everything that is shown, because anybody in between can forge what Health reads.
func (c *Client) SignedHealth(ctx context.Context) (contract.Health, error) {
	health, err := ask[contract.Health](ctx, c, get(contract.PathHealth, nil))
	health.Version = release(health.Version)
	return health, err
}

// Probe describes the machine.
func (c *Client) Probe(ctx context.Context) (contract.Probe, error) {
	return ask[contract.Probe](ctx, c, get(contract.PathProbe, nil))
}

// Kernel returns the state of the kernel.
func (c *Client) Kernel(ctx context.Context) (contract.Kernel, error) {
	return ask[contract.Kernel](ctx, c, get(contract.PathKernel, nil))
}

// startTime is how long CurrentKernel waits for a kernel that is starting. On a busy VM a start
// takes many seconds.
const startTime = 20 * time.Second

// CurrentKernel is like Kernel, but waits for a kernel that is starting, and fails with
// kernel_dead if there is none.
func (c *Client) CurrentKernel(ctx context.Context) (contract.Kernel, error) {
	pause := NewBackOff()
	for until := time.Now().Add(startTime); ; {
		k, err := c.Kernel(ctx)
		switch {
		case err != nil || k.KernelID != "":
			return k, err
		case k.Status == contract.KernelDead:
			return k, &contract.Error{Code: contract.CodeKernelDead, Message: "the kernel is dead", Hint: "Restart the kernel."}
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
		}
		if ctx.Err() != nil || time.Now().After(until) {
			return k, &contract.Error{Code: contract.CodeKernelStarting, Message: "the kernel is starting", Hint: "Try again in a few seconds."}
		}
	}
}

// RestartKernel ends the kernel kernelID, as returned by Kernel, and waits until a new one is
// ready. If another kernel is current, as after an earlier attempt, it does nothing and
// returns that one, so a kernel is not restarted twice.
func (c *Client) RestartKernel(ctx context.Context, kernelID string) (contract.Kernel, error) {
	return ask[contract.Kernel](ctx, c, c.post(contract.PathKernelRestart, encode(contract.KernelRef{KernelID: kernelID})))
}

// Variables lists the user's variables.
func (c *Client) Variables(ctx context.Context) (contract.Variables, error) {
	return ask[contract.Variables](ctx, c, get(contract.PathVariables, nil))
}

// Inspect describes one variable.
func (c *Client) Inspect(ctx context.Context, name string) (contract.Inspection, error) {
	return ask[contract.Inspection](ctx, c, get(contract.PathInspect, url.Values{"name": {name}}))
}

// Cleanup deletes the user's variables in the kernel kernelID and frees memory. If another
// kernel is current, it does nothing and fails with conflict.
func (c *Client) Cleanup(ctx context.Context, kernelID string) (contract.Cleanup, error) {
	return call[contract.Cleanup](ctx, &attempts{client: c, build: c.post(contract.PathCleanup, encode(contract.KernelRef{KernelID: kernelID}))}, ifUnsent)
}

// encode returns the JSON of a body that consists of strings, finite numbers and booleans, which
// can always be encoded.
func encode(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return text
}

// List lists at most limit executions, newest first, without events. A limit of 0 means the
// executor's own limit.
func (c *Client) List(ctx context.Context, limit int) (contract.ExecutionList, error) {
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return ask[contract.ExecutionList](ctx, c, get(contract.PathExecutions, query))
}

// decimal returns d in seconds, as the contract writes waits.
func decimal(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// Interrupt interrupts a running execution and cancels a queued one.
func (c *Client) Interrupt(ctx context.Context, id string) (contract.Execution, error) {
	path, err := executionPath(contract.PathInterrupt, id)
	if err != nil {
		return contract.Execution{}, err
	}
	return c.execution(ctx, idempotent, c.post(path, nil))
}

func get(path string, query url.Values) func() request {
	return func() request { return request{method: http.MethodGet, path: path, query: query} }
}

// slowAction is how long the executor may take for an action that it waits for itself: ending
// a kernel takes up to a minute.
const slowAction = time.Minute

func (c *Client) post(path string, body []byte) func() request {
	return func() request {
		return request{method: http.MethodPost, path: path, body: body, wait: slowAction}
	}
}

// executionPath inserts an execution's id into a route.
func executionPath(route, id string) (string, error) {
	return idPath(route, id, "execution", "List the executions to see their ids.")
}

// idPath inserts the id of a thing into a route. It fails for an id that no executor creates,
// such as one that a model invented, because it could lead to another route.
func idPath(route, id, thing, hint string) (string, error) {
	if !validID(id) {
		return "", &contract.Error{
			Code:    contract.CodeNotFound,
			Message: fmt.Sprintf("there is no %s %.40q", thing, id),
			Hint:    hint,
		}
	}
	return strings.Replace(route, "{id}", id, 1), nil
}

// fitWait limits wait to contract.MaxWait, to what proxies wait for, and to the time that ctx
// leaves, minus time for the answer to arrive: an answer after the end of ctx would lose the
// execution's id.
func (c *Client) fitWait(ctx context.Context, wait time.Duration) time.Duration {
	wait = min(wait, contract.MaxWait, cmp.Or(time.Duration(c.limits.wait.Load()), contract.MaxWait))
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, left-min(left/5, time.Second))
	}
	return max(wait, 0).Truncate(time.Millisecond)
}

// Submit runs code and waits for its end, an input request, or WaitSeconds. It retries until
// ctx ends, always with one RequestID (created here if empty), so the code runs at most once.
//
// Each attempt is signed for one executor: when a new VM has taken over the address, code that
// may have run on the old one must not run again unnoticed. A submit that certainly reached no
// executor before goes to the new one, which InstanceID then names. Otherwise Submit returns
// the refusal, new_instance, and later submits go to the new one.
func (c *Client) Submit(ctx context.Context, s contract.Submit) (contract.Execution, error) {
	return c.submit(ctx, s, &attempts{client: c, moves: true})
}

// SubmitTo is Submit for one instance only. Every other instance refuses with new_instance.
func (c *Client) SubmitTo(ctx context.Context, instanceID string, s contract.Submit) (contract.Execution, error) {
	return c.submit(ctx, s, &attempts{client: c, pinned: instanceID})
}

func (c *Client) submit(ctx context.Context, s contract.Submit, a *attempts) (contract.Execution, error) {
	if s.RequestID == "" {
		s.RequestID = rand.Text()
	}
	if _, err := json.Marshal(s); err != nil {
		return contract.Execution{}, fmt.Errorf("writing a submit: %w", err)
	}
	a.build = func() request { return c.submitRequest(ctx, s) }
	e, err := call[contract.Execution](ctx, a, idempotent)
	if errors.Is(err, bounded.ErrTooLong) {
		err = problemWithHint(KindBadAnswer, tooMuch+", so it was not read; the code has run or is still running",
			fmt.Sprintf("Do not run the code again: list_executions shows it as the newest run (request_id %s), and get_execution reads it.", s.RequestID), err)
	}
	if err != nil {
		return e, a.unsettled(ctx, err)
	}
	if c.recorder != nil {
		c.recorder.Submitted(a.answered.ID, s, e)
	}
	return e, nil
}

func (c *Client) submitRequest(ctx context.Context, s contract.Submit) request {
	seconds := min(s.WaitSeconds, contract.MaxWait.Seconds())
	wait := c.fitWait(ctx, time.Duration(seconds*float64(time.Second)))
	s.WaitSeconds = wait.Seconds()
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // submit has encoded it before
	}
	return request{method: http.MethodPost, path: contract.PathExecutions, body: text, wait: wait}
}

// SubmitJobTo submits a job to one instance, by the rules of Submit: it retries until ctx ends,
// always with the job's own JobID, so nothing of it runs twice. Every other instance refuses with
// new_instance. MayRun says of an error whether the job may run nevertheless.
func (c *Client) SubmitJobTo(ctx context.Context, instanceID string, s contract.JobSubmit) (contract.Job, error) {
	a := &attempts{client: c, pinned: instanceID, build: c.post(contract.PathJobs, encode(s))}
	j, err := call[contract.Job](ctx, a, idempotent)
	if err != nil {
		return j, a.unsettled(ctx, err)
	}
	return j, nil
}

// unsettled returns err, with which a submit ended, so that MayRun knows whether its code may run:
// an attempt was sent, and no signed answer says what became of it.
func (a *attempts) unsettled(ctx context.Context, err error) error {
	refused := refusal(err)
	switch {
	case !a.arrived:
		return err
	case refused != nil && refused.Code == contract.CodeNewInstance:
		return replacedError{err}
	case refused != nil && isFinal(refused):
		return err
	case refused != nil:
		return uncertain(ctx, refused)
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = problem(KindBadAnswer, err.Error(), err)
	}
	fresh := *e
	fresh.sent = true
	return &fresh
}

// isFinal reports whether the executor refuses this submit whenever it arrives. Other refusals
// depend on the moment: an attempt that is still on its way may be accepted.
func isFinal(refused *contract.Error) bool {
	switch refused.Code {
	case contract.CodeBadRequest, contract.CodeConflict, contract.CodeTooLarge, contract.CodeNotSupported,
		contract.CodeUnauthorized:
		return true
	}
	return false
}

// uncertain is the error of a submit of which one attempt was refused and another one was not
// answered: that one may still be accepted.
func uncertain(ctx context.Context, refused *contract.Error) error {
	e := problem(KindTimeout, fmt.Sprintf("one attempt to submit the code got no answer, and another one was refused (%s: %s), so the code may still run", refused.Code, refused.Message), context.Cause(ctx))
	e.sent = true
	return e
}

// MayRun reports whether the code of a submit that ended with err may run nevertheless. The code
// of one that ended with another error certainly does not.
func MayRun(err error) bool {
	_, unanswered := errors.AsType[*Error](err)
	_, replaced := errors.AsType[replacedError](err)
	return replaced || unanswered && MayHaveArrived(err)
}

// replacedError is the refusal of a new VM after an attempt that the old one may have accepted.
type replacedError struct{ error }

func (e replacedError) Unwrap() error { return e.error }

// ErrInputUnknown is in the error of Input if an attempt got no answer and a later one was refused.
var ErrInputUnknown = errors.New("an attempt got no answer")

// Input answers a waiting input() and returns the run as it is then, without events.
//
// Without in.Offset a repeated request could answer the next prompt, so the call is retried
// only after attempts that certainly were not sent. With in.Offset the executor accepts a repeated
// one without effect, as long as no other text was accepted, so the call is retried until ctx
// ends. After a conflict, an earlier attempt without an answer may have been accepted
// nevertheless: the error is a KindTimeout of which MayHaveArrived is true.
func (c *Client) Input(ctx context.Context, id string, in contract.Input) (contract.Execution, error) {
	path, err := executionPath(contract.PathInput, id)
	if err != nil {
		return contract.Execution{}, err
	}
	if in.Offset == nil {
		return c.execution(ctx, ifUnsent, c.post(path, encode(in)))
	}
	in.InputID = rand.Text()
	arrived := false
	x, err := c.execution(ctx, func(err error, bad int) bool {
		arrived = arrived || MayHaveArrived(err)
		return idempotent(err, bad)
	}, c.post(path, encode(in)))
	if refused := refusal(err); arrived && refused != nil && refused.Code == contract.CodeConflict {
		lost := problemWithHint(KindTimeout, "it is not known whether the text was accepted: the answer was lost, and the run no longer waits at that prompt", "Read the run's output to see whether the text was used.", ErrInputUnknown)
		lost.sent = true
		return contract.Execution{}, lost
	}
	return x, err
}

// Job reads a job's entries from index from on. It waits up to wait (at most contract.MaxWait,
// less if ctx ends before) until that entry has begun, or the job has ended or waits.
func (c *Client) Job(ctx context.Context, id string, from int, wait time.Duration) (contract.Job, error) {
	path, err := jobPath(id)
	if err != nil {
		return contract.Job{}, err
	}
	return ask[contract.Job](ctx, c, func() request {
		wait := c.fitWait(ctx, wait)
		query := url.Values{"from": {strconv.Itoa(from)}, "wait_seconds": {decimal(wait)}}
		return request{method: http.MethodGet, path: path, query: query, wait: wait}
	})
}

// PatchJob replaces what has not begun of a job, on one instance only. It may be repeated,
// because a patch is for one revision.
func (c *Client) PatchJob(ctx context.Context, instanceID, id string, p contract.JobPatch) (contract.Job, error) {
	return c.changeJob(ctx, instanceID, id, request{method: http.MethodPatch, body: encode(p), wait: slowAction})
}

// DeleteJob has nothing further of a job begin, on one instance only. What runs goes on to its
// end, or is interrupted.
func (c *Client) DeleteJob(ctx context.Context, instanceID, id string, interrupt bool) (contract.Job, error) {
	query := url.Values{"interrupt": {strconv.FormatBool(interrupt)}}
	return c.changeJob(ctx, instanceID, id, request{method: http.MethodDelete, query: query, wait: slowAction})
}

func (c *Client) changeJob(ctx context.Context, instanceID, id string, r request) (contract.Job, error) {
	path, err := jobPath(id)
	if err != nil {
		return contract.Job{}, err
	}
	r.path = path
	a := &attempts{client: c, pinned: instanceID, build: func() request { return r }}
	return call[contract.Job](ctx, a, idempotent)
}

// jobPath inserts a job's id into the route.
func jobPath(id string) (string, error) {
	return idPath(contract.PathJob, id, "job", "List the jobs to see their ids.")
}
