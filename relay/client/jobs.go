package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"colabrelay/shared/contract"
)

// SubmitJob submits a job, by the rules of Submit: it retries until ctx ends, always with the
// job's own JobID, so nothing of it runs twice. MayRun says of an error whether the job may run
// nevertheless.
func (c *Client) SubmitJob(ctx context.Context, s contract.JobSubmit) (contract.Job, error) {
	return c.submitJob(ctx, s, &attempts{client: c, moves: true})
}

// SubmitJobTo is SubmitJob for one instance only. Every other instance refuses with
// new_instance.
func (c *Client) SubmitJobTo(ctx context.Context, instanceID string, s contract.JobSubmit) (contract.Job, error) {
	return c.submitJob(ctx, s, &attempts{client: c, pinned: instanceID})
}

func (c *Client) submitJob(ctx context.Context, s contract.JobSubmit, a *attempts) (contract.Job, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return contract.Job{}, fmt.Errorf("writing a job: %w", err)
	}
	a.build = c.post(contract.PathJobs, body)
	j, err := finishHeld[contract.Job](ctx, a, func(err error, bad int) bool {
		atOnce := ctx.Value(queueFullKey{}) != nil && isFull(err) && !a.arrived
		return !atOnce && idempotent(err, bad)
	})
	if err != nil {
		return j, a.unsettled(ctx, err)
	}
	return j, nil
}

// Job reads a job's entries from index from on. It waits up to wait (at most contract.MaxWait,
// less if ctx ends before) until that entry has begun, or the job has ended or waits.
func (c *Client) Job(ctx context.Context, id string, from int, wait time.Duration) (contract.Job, error) {
	path, err := jobPath(id)
	if err != nil {
		return contract.Job{}, err
	}
	return held[contract.Job](ctx, c, idempotent, func() request {
		wait := c.fitWait(ctx, wait)
		query := url.Values{"from": {strconv.Itoa(from)}, "wait_seconds": {decimal(wait)}}
		return request{method: http.MethodGet, path: path, query: query, wait: wait}
	})
}

// Jobs lists at most limit jobs, newest first, without entries. A limit of 0 means the
// executor's own limit.
func (c *Client) Jobs(ctx context.Context, limit int) (contract.JobList, error) {
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return held[contract.JobList](ctx, c, idempotent, get(contract.PathJobs, query))
}

// PatchJob replaces what has not begun of a job, on one instance only. It may be repeated,
// because of its PatchID.
func (c *Client) PatchJob(ctx context.Context, instanceID, id string, p contract.JobPatch) (contract.Job, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return contract.Job{}, fmt.Errorf("writing a patch: %w", err)
	}
	return c.changeJob(ctx, instanceID, id, request{method: http.MethodPatch, body: body, wait: slowAction})
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
	return finishHeld[contract.Job](ctx, a, idempotent)
}

// jobPath inserts a job's id into the route.
func jobPath(id string) (string, error) {
	return idPath(contract.PathJob, id, "job", "List the jobs to see their ids.")
}
