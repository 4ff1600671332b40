package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"colabrelay/shared/contract"
)

// Every call returns a *contract.Error where the executor refused and an *Error
// where no executor answered. Calls that only ask, Interrupt and RestartKernel are tried
// again until ctx ends; others that change something only while they surely were not
// sent. Those that change something are meant for the executor that answered last when
// they began; another one refuses them with new_instance, which is returned: only
// submits and the starts of uploads go on to it by themselves.

// Health asks once, unsigned, how the executor is. It proves nothing about the
// secret: any signed call does.
func (c *Client) Health(ctx context.Context) (contract.Health, error) {
	var health contract.Health
	ctx, timer := startStallTimer(ctx, c.timeouts.answer)
	defer timer.stop()
	req, _ := c.newRequest(ctx, request{method: http.MethodGet, path: contract.PathHealth}, timer)
	res, raw, err := c.roundTrip(req, timer, nil)
	if err != nil {
		return health, c.transportError(ctx, err, false)
	}
	body, err := decompress(raw, res.Header.Get("Content-Encoding"), maxAnswerBytes)
	if err != nil || res.StatusCode != http.StatusOK || json.Unmarshal(body, &health) != nil || health.Status != "ok" {
		return contract.Health{}, c.unverified(res, raw, err)
	}
	clean(&health)
	health.Version = release(health.Version)
	if health.Protocol != contract.Protocol {
		return health, otherProtocol(health.Protocol)
	}
	return health, nil
}

// SignedHealth asks how the executor is, with a signature both ways: what is shown of an
// executor comes from here, as anybody on the way can write what Health reads.
func (c *Client) SignedHealth(ctx context.Context) (contract.Health, error) {
	health, err := call[contract.Health](ctx, c, idempotent, get(contract.PathHealth, nil))
	health.Version = release(health.Version)
	return health, err
}

// Probe asks what machine it is.
func (c *Client) Probe(ctx context.Context) (contract.Probe, error) {
	return call[contract.Probe](ctx, c, idempotent, get(contract.PathProbe, nil))
}

// Kernel asks how the kernel is.
func (c *Client) Kernel(ctx context.Context) (contract.Kernel, error) {
	return call[contract.Kernel](ctx, c, idempotent, get(contract.PathKernel, nil))
}

// CurrentKernel is Kernel, but waits for a kernel that is starting, and fails with
// kernel_dead where there is none.
func (c *Client) CurrentKernel(ctx context.Context) (contract.Kernel, error) {
	j := &attempts{client: c, build: get(contract.PathKernel, nil)}
	var k contract.Kernel
	_, err := c.retry(ctx, idempotent, func() (answer, error) {
		got, err := j.try(ctx)
		if err == nil {
			err = read(got.body, &k)
		}
		switch {
		case err != nil || k.KernelID != "":
			return got, err
		case k.Status == contract.KernelDead:
			return got, &contract.Error{Code: contract.CodeKernelDead, Message: "the kernel is dead", Hint: "restart the kernel"}
		}
		return got, &contract.Error{Code: contract.CodeKernelStarting, Message: "the kernel is starting", Hint: "try again in a few seconds"}
	})
	return k, err
}

// RestartKernel ends the kernel called kernelID, as Kernel tells it, and waits until a
// new one is ready. When another one is current, as after an earlier try, it does
// nothing and gives that one: a kernel is not restarted twice.
func (c *Client) RestartKernel(ctx context.Context, kernelID string) (contract.Kernel, error) {
	return call[contract.Kernel](ctx, c, idempotent, c.post(contract.PathKernelRestart, kernelRef(kernelID)))
}

// Variables lists the user's variables.
func (c *Client) Variables(ctx context.Context) (contract.Variables, error) {
	return call[contract.Variables](ctx, c, idempotent, get(contract.PathVariables, nil))
}

// Inspect describes one variable.
func (c *Client) Inspect(ctx context.Context, name string) (contract.Inspection, error) {
	return call[contract.Inspection](ctx, c, idempotent, get(contract.PathInspect, url.Values{"name": {name}}))
}

// Cleanup deletes the user's variables in the kernel called kernelID and frees memory.
// Where another kernel is current, it is left as it is, and the answer is conflict.
func (c *Client) Cleanup(ctx context.Context, kernelID string) (contract.Cleanup, error) {
	return call[contract.Cleanup](ctx, c, ifUnsent, c.post(contract.PathCleanup, kernelRef(kernelID)))
}

func kernelRef(id string) []byte {
	body, err := json.Marshal(contract.KernelRef{KernelID: id})
	if err != nil {
		panic(err) // one string
	}
	return body
}

// List lists executions, newest first, without events; the executor's own limit
// holds where limit is 0.
func (c *Client) List(ctx context.Context, limit int) (contract.ExecutionList, error) {
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return call[contract.ExecutionList](ctx, c, idempotent, get(contract.PathExecutions, query))
}

// Execution reads an execution's events from offset on, waiting up to wait (at most
// contract.MaxWait, less where ctx ends before) for one to be there. maxBytes 0 leaves
// the size of the answer to the executor. An event that is too long to be taken is
// stepped past: a gap stands for it, whose Cut says so.
func (c *Client) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	path, err := executionPath(contract.PathExecution, id)
	if err != nil {
		return contract.Execution{}, err
	}
	return c.events(ctx, eventQuery{path: path, offset: offset, wait: wait, maxBytes: maxBytes})
}

// decimal is d in seconds, as the contract writes waits.
func decimal(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// Interrupt interrupts a running execution and cancels a queued one.
func (c *Client) Interrupt(ctx context.Context, id string) (contract.Execution, error) {
	path, err := executionPath(contract.PathInterrupt, id)
	if err != nil {
		return contract.Execution{}, err
	}
	return call[contract.Execution](ctx, c, idempotent, c.post(path, nil))
}

// Input answers a waiting input().
func (c *Client) Input(ctx context.Context, id, text string) (contract.Execution, error) {
	path, err := executionPath(contract.PathInput, id)
	if err != nil {
		return contract.Execution{}, err
	}
	body, err := json.Marshal(contract.Input{Text: text})
	if err != nil {
		return contract.Execution{}, fmt.Errorf("writing an input: %w", err)
	}
	return call[contract.Execution](ctx, c, ifUnsent, c.post(path, body))
}

// Shutdown ends kernel, tunnel and executor.
func (c *Client) Shutdown(ctx context.Context) (contract.Shutdown, error) {
	return call[contract.Shutdown](ctx, c, ifUnsent, c.post(contract.PathShutdown, nil))
}

func get(path string, query url.Values) func() request {
	return func() request { return request{method: http.MethodGet, path: path, query: query} }
}

// slowAction is how long the executor may take over something that it waits for
// itself: a kernel that will not end is given a minute of signals.
const slowAction = time.Minute

func (c *Client) post(path string, body []byte) func() request {
	return func() request {
		return request{method: http.MethodPost, path: path, body: body, wait: slowAction}
	}
}

// executionPath fills an execution's id into a route.
func executionPath(route, id string) (string, error) {
	return idPath(route, id, "execution", "list the executions to see their ids")
}

// idPath fills id, of some thing, into a route. An id that no executor made, as a
// model may invent, is not found without asking: it could lead to another route.
func idPath(route, id, thing, hint string) (string, error) {
	if !contract.RequestIDPattern.MatchString(id) || strings.Trim(id, ".") == "" {
		return "", &contract.Error{
			Code:    contract.CodeNotFound,
			Message: fmt.Sprintf("there is no %s %.40q", thing, id),
			Hint:    hint,
		}
	}
	return strings.Replace(route, "{id}", id, 1), nil
}
