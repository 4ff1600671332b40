package client

import (
	"context"
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// attempts is one call under way, of one try or several. Use one for one call, from one
// goroutine.
//
// Every request but GET names the executor it is meant for, and that stays the one of
// the call's first try: what the client hears of meanwhile, in other calls, may be
// another VM's. A signed refusal that names the executor's present start, or its time,
// proves that this try did nothing and says what was wrong with it; the job then
// signs once more, at once.
type attempts struct {
	client *Client
	build  func() request // a try's request, without the instance
	// moves says that the call goes on to another instance by itself. It does so only
	// while no try of it may have been accepted: the old VM may have done what it asked.
	moves bool
	// pinned, when set, is the only instance the call is meant for, whichever answers.
	pinned string

	instance contract.Instance // whom a call that changes something is meant for
	arrived  bool              // a try of it may have been accepted
}

// try makes one try, and one more for each thing that a refusal corrects.
func (j *attempts) try(ctx context.Context) (answer, error) {
	corrected := map[contract.Code]bool{}
	for {
		got, err := j.once(ctx)
		refused := refusal(err)
		if refused == nil || !j.correct(got, refused) || corrected[refused.Code] {
			j.arrived = j.arrived || mayHaveArrived(err)
			return got, err
		}
		corrected[refused.Code] = true
	}
}

func (j *attempts) once(ctx context.Context) (answer, error) {
	r := j.build()
	if r.method != http.MethodGet {
		r.instance = j.instance
	}
	return j.client.try(ctx, r)
}

// address fixes whom the call is meant for; it comes before the first try. Where nobody
// has been heard of yet it asks, unless the call is a GET. Of a pinned instance the
// start may be unknown; the refusal tells it.
func (j *attempts) address(ctx context.Context) (err error) {
	j.instance = j.client.current()
	if j.instance.IsZero() && j.build().method != http.MethodGet {
		if j.instance, err = j.client.firstInstance(ctx); err != nil {
			return err
		}
	}
	if j.pinned != "" {
		j.instance.ID = j.pinned
	}
	return nil
}

// correct takes over what a signed refusal says of the executor's time, start and
// instance, and reports whether the call may be tried again at once for it.
//
// A new start may be followed by every call, also by those that must not be done twice:
// no earlier try of such a call can have been accepted, since they are not tried again
// after one that may have been. And should something on the way have sent one try
// twice, the first of them to the earlier start, that start took the kernel and the
// execution that input, interrupt, restart and cleanup name with it; a submit is known
// by its request_id, and an upload by its file, to the new start as well.
func (j *attempts) correct(got answer, refused *contract.Error) bool {
	if refused.ServerTime > 0 {
		j.client.setClock(time.Unix(refused.ServerTime, 0))
	}
	newStart := got.instance.ID == j.instance.ID && got.instance.Start != j.instance.Start
	if newStart { // told by rate_limited too, where the executor gives no other cause any more
		j.instance = got.instance
	}
	switch refused.Code {
	case contract.CodeClockSkew:
		return refused.ServerTime > 0
	case contract.CodeNewStart:
		return newStart
	case contract.CodeNewInstance:
		if !j.moves || j.arrived || j.pinned != "" {
			return false
		}
		j.instance = got.instance
		return true
	}
	return false
}

// firstInstance is the executor that answered last; before there is one, it asks.
// Only one caller asks at a time.
func (c *Client) firstInstance(ctx context.Context) (contract.Instance, error) {
	if known := c.current(); !known.IsZero() {
		return known, nil
	}
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return contract.Instance{}, ended(ctx, nil)
	}
	if known := c.current(); !known.IsZero() {
		return known, nil
	}
	_, err := c.Kernel(ctx)
	if known := c.current(); !known.IsZero() { // a refusal names it too
		return known, nil
	}
	return contract.Instance{}, err
}
