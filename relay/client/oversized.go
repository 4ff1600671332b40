package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// maxSkipped bounds the events that one read skips: each costs a request whose answer is read
// up to Client.maxAnswer.
const maxSkipped = 8

// smallReads are the values of max_bytes for further attempts after an answer that was too
// long. An executor always sends at least one event.
var smallReads = []int64{64 << 10, 1}

// eventQuery is a request for an execution's events.
type eventQuery struct {
	path     string
	offset   int64
	wait     time.Duration
	maxBytes int64 // 0 leaves it to the executor
}

// events reads events, and skips those that are too long.
func (c *Client) events(ctx context.Context, r eventQuery) (contract.Execution, error) {
	e, err := c.eventsOnce(ctx, r)
	if !errors.Is(err, bounded.ErrTooLong) {
		return e, err
	}
	r.wait = 0 // the events are there
	for _, r.maxBytes = range smallReads {
		if e, err = c.eventsOnce(ctx, r); !errors.Is(err, bounded.ErrTooLong) {
			return e, err
		}
	}
	return c.skipOversized(ctx, r, err)
}

// skipOversized reads on after the event at r.offset, which alone is too long. A gap stands
// for each skipped event.
func (c *Client) skipOversized(ctx context.Context, r eventQuery, tooLong error) (contract.Execution, error) {
	first := r.offset
	var gaps []contract.Event
	for range maxSkipped {
		gaps = append(gaps, contract.Event{
			Offset: r.offset, Type: contract.EventGap, Bytes: c.maxAnswer, Events: 1,
			Cut: fmt.Sprintf("an event that this relay does not read, because the answer %s", excess(tooLong, c.maxAnswer)),
		})
		r.offset++
		e, err := c.eventsOnce(ctx, r)
		refused := refusal(err)
		switch {
		case err == nil:
			e.Events = append(gaps, e.Events...)
			return e, nil
		case refused != nil && refused.Code == contract.CodeBadRequest: // there is no event at this offset: the other fields are too long
			return e, c.tooLongAt(first, first, tooLong)
		case !errors.Is(err, bounded.ErrTooLong):
			return e, err
		}
	}
	return contract.Execution{}, c.tooLongAt(first, r.offset, tooLong)
}

// tooLongAt returns the error for an execution that can't be read at the offset first, and
// says where to continue.
func (c *Client) tooLongAt(first, next int64, cause error) error {
	return problemWithHint(KindBadAnswer,
		fmt.Sprintf("the executor's answer from offset %d on %s; this does not affect the execution", first, excess(cause, c.maxAnswer)),
		fmt.Sprintf("Do not run the code again: read on with get_execution from offset %d, and update the executor.", max(next, first+1)), cause)
}

func (c *Client) eventsOnce(ctx context.Context, r eventQuery) (contract.Execution, error) {
	e, err := c.execution(ctx, idempotent, func() request {
		wait := c.fitWait(ctx, r.wait)
		query := url.Values{"offset": {strconv.FormatInt(r.offset, 10)}}
		query.Set("wait_seconds", decimal(wait))
		if ctx.Value(behindInputKey{}) != nil {
			query.Set(contract.QueryBehindInput, "true")
		}
		if r.maxBytes > 0 {
			query.Set("max_bytes", strconv.FormatInt(r.maxBytes, 10))
		}
		return request{method: http.MethodGet, path: r.path, query: query, wait: wait}
	})
	if err == nil {
		err = checkAsked(&e, cmp.Or(r.maxBytes, contract.DefaultReadBytes))
	}
	if err != nil {
		return contract.Execution{}, err
	}
	return e, nil
}

// submitted reads the execution of a submit whose answer was too long. The code was accepted,
// and its execution is found by request_id.
func (c *Client) submitted(ctx context.Context, requestID string, tooLong error) (contract.Execution, error) {
	list, err := c.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return contract.Execution{}, c.acceptedUnread(requestID, tooLong, err)
	}
	for _, e := range list.Executions {
		if e.RequestID == requestID {
			if e, err = c.Execution(ctx, e.ExecutionID, 0, 0, 0); err != nil {
				err = c.acceptedUnread(requestID, tooLong, err)
			}
			return e, err
		}
	}
	return contract.Execution{}, c.acceptedUnread(requestID, tooLong, tooLong)
}

// acceptedUnread returns the error of a submit whose answer can't be read. cause is why its
// execution was not found either.
func (c *Client) acceptedUnread(requestID string, tooLong, cause error) error {
	return problemWithHint(KindBadAnswer, fmt.Sprintf("the executor's answer to this run %s, so it was not read; the code has run or is still running", excess(tooLong, c.maxAnswer)),
		fmt.Sprintf("Do not run the code again: list_executions shows it as the newest run (request_id %s), and get_execution reads it.", requestID), cause)
}
