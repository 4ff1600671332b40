package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

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

// encode returns the JSON of a body that consists of strings, whole numbers and booleans,
// which can always be encoded.
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

// Shutdown ends kernel, tunnel and executor.
func (c *Client) Shutdown(ctx context.Context) (contract.Shutdown, error) {
	return call[contract.Shutdown](ctx, &attempts{client: c, build: c.post(contract.PathShutdown, nil)}, ifUnsent)
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
