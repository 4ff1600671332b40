package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// Submit runs code and waits for its end, an input request, or WaitSeconds. It
// tries again until ctx ends, always under one RequestID (made here where empty), so
// the code runs at most once.
//
// Each try names the instance it means, asked for before the very first submit: when
// a new VM has taken over the address, a request that may have run on the old one
// must not run again unseen. A new_instance refusal of a submit that surely reached
// no executor before is no such case; it goes to the new instance. Otherwise the
// refusal is returned, and later submits go to the new instance. A caller that sets
// ExpectedInstanceID always gets the refusal.
func (c *Client) Submit(ctx context.Context, s contract.Submit) (contract.Execution, error) {
	var result contract.Execution
	if s.RequestID == "" {
		s.RequestID = rand.Text()
	}
	if _, err := json.Marshal(s); err != nil {
		return result, fmt.Errorf("writing a submit: %w", err)
	}
	job := submission{client: c, submit: s, pinned: s.ExpectedInstanceID != ""}
	if s.ExpectedInstanceID == "" {
		id, err := c.firstInstance(ctx)
		if err != nil {
			return result, err
		}
		job.submit.ExpectedInstanceID = id
	}
	got, err := c.retry(ctx, always, func() (answer, error) { return job.try(ctx) })
	if err == nil {
		err = read(got.body, &result)
	}
	if errors.Is(err, errTooLong) {
		return c.submitted(ctx, s.RequestID, err)
	}
	return result, err
}

// submission is one Submit under way.
type submission struct {
	client  *Client
	submit  contract.Submit
	arrived bool // an earlier try may have reached the executor
	pinned  bool // the caller named the instance
}

func (s *submission) try(ctx context.Context) (answer, error) {
	build := func() request { return s.build(ctx) }
	got, err := s.client.attempt(ctx, build)
	if refused := refusal(err); refused != nil && refused.Code == contract.CodeNewInstance && !s.arrived && !s.pinned {
		s.submit.ExpectedInstanceID = got.instance
		got, err = s.client.attempt(ctx, build)
	}
	s.arrived = s.arrived || mayHaveArrived(err)
	return got, err
}

func (s *submission) build(ctx context.Context) request {
	seconds := min(s.submit.WaitSeconds, contract.MaxWait.Seconds())
	wait := fitWait(ctx, time.Duration(seconds*float64(time.Second)))
	body := s.submit
	body.WaitSeconds = wait.Seconds()
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // Submit wrote it once already
	}
	return request{method: http.MethodPost, path: contract.PathExecutions, body: text, wait: wait}
}

// firstInstance is the instance that answered last; before there is one, it asks.
// Only one caller asks at a time.
func (c *Client) firstInstance(ctx context.Context) (string, error) {
	if id := c.InstanceID(); id != "" {
		return id, nil
	}
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return "", ended(ctx, nil)
	}
	if id := c.InstanceID(); id != "" {
		return id, nil
	}
	if _, err := c.Kernel(ctx); err != nil && c.InstanceID() == "" {
		return "", err
	}
	return c.InstanceID(), nil
}

// fitWait shortens wait to contract.MaxWait and to what ctx leaves, with time for the
// answer to arrive: an answer after ctx has ended would lose the execution's id.
func fitWait(ctx context.Context, wait time.Duration) time.Duration {
	wait = min(wait, contract.MaxWait)
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, left-min(left/5, time.Second))
	}
	return max(wait, 0).Truncate(time.Millisecond)
}
