package client

import (
	"context"
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// attempts is one call in progress, which makes one attempt or several. It is used for one
// call, by one goroutine.
//
// Every request except GET names the executor that it is intended for. That is the executor
// of the call's first attempt, because an answer that the client gets in another call may come
// from another VM. A signed refusal that names the executor's current start or time proves
// that this attempt did nothing and says what was wrong with it; the call then signs once more
// immediately.
type attempts struct {
	client *Client
	build  func() request // the request of one attempt, without the instance
	// moves allows the call to continue with another instance, but only while no attempt may
	// have been accepted, because the old VM may have executed it.
	moves bool
	// pinned, unless empty, is the only instance that the call is intended for.
	pinned string

	instance contract.Instance // that a call other than GET is intended for
	arrived  bool              // an attempt was accepted, or may have been
	answered contract.Instance // that sent the last signed answer; zero before
}

// attempt makes one attempt, and one more for each error that a refusal corrects.
func (a *attempts) attempt(ctx context.Context) (answer, error) {
	corrected := map[contract.Code]bool{}
	for {
		got, err := a.once(ctx)
		if !got.instance.IsZero() {
			a.answered = got.instance
		}
		refused := refusal(err)
		if refused == nil || !a.correct(got, refused) || corrected[refused.Code] {
			a.arrived = a.arrived || err == nil || mayHaveArrived(err)
			return got, err
		}
		corrected[refused.Code] = true
	}
}

func (a *attempts) once(ctx context.Context) (answer, error) {
	r := a.build()
	if r.method != http.MethodGet {
		r.instance = a.instance
	}
	return a.client.send(ctx, r)
}

// address determines, before the first attempt, the executor that the call is intended for. If
// none is known yet it requests one, unless the call is a GET. The start of a pinned instance
// may be unknown; the refusal contains it.
func (a *attempts) address(ctx context.Context) (err error) {
	a.instance = a.client.current()
	if a.instance.IsZero() && a.build().method != http.MethodGet {
		if a.instance, err = a.client.firstInstance(ctx); err != nil {
			return err
		}
	}
	if a.pinned != "" {
		a.instance.ID = a.pinned
	}
	return nil
}

// correct applies what a signed refusal says about the executor's time, start and instance,
// and reports whether the call may be retried immediately.
//
// Every call may follow a new start, including those that must not be executed twice: they are
// not retried after an attempt that may have been accepted, so no earlier attempt was. If
// something in between sent one attempt twice, and the first copy reached the earlier start,
// then the kernel and the execution that input, interrupt, restart and cleanup name ended with
// that start; and the new start recognises a submit by its request_id and an upload by its
// file.
func (a *attempts) correct(got answer, refused *contract.Error) bool {
	if refused.ServerTime > 0 {
		a.client.setClock(time.Unix(refused.ServerTime, 0))
	}
	newStart := got.instance.ID == a.instance.ID && got.instance.Start != a.instance.Start
	if newStart { // rate_limited contains it too, when the executor states no other cause
		a.instance = got.instance
	}
	switch refused.Code {
	case contract.CodeClockSkew:
		return refused.ServerTime > 0
	case contract.CodeNewStart:
		return newStart
	case contract.CodeNewInstance:
		if !a.moves || a.arrived || a.pinned != "" {
			return false
		}
		a.instance = got.instance
		return true
	}
	return false
}

// firstInstance returns the executor that answered last; before the first answer, it sends a
// request. Only one caller does so at a time.
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
	if known := c.current(); !known.IsZero() { // a refusal contains it too
		return known, nil
	}
	return contract.Instance{}, err
}
