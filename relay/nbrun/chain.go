package nbrun

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

const (
	// window is how many cells are submitted ahead. The VM goes on with them while this
	// computer sleeps.
	window = 16
	// afterFailure is how many they are right after a cell failed.
	afterFailure = 4
	// singleWait is how long the submit of a cell waits for its end where an executor does not
	// know chains: a quick cell then takes one request.
	singleWait = 5 * time.Second
)

// fill submits the next cells. Their flights are on disk before.
func (a *advance) fill(ctx context.Context) error {
	flying := a.flying()
	if a.run().Stopping != "" || a.run().RetryAt != nil && a.run().RetryAt.After(time.Now()) {
		return nil
	}
	if a.run().Undecided {
		if len(flying) > 0 {
			return nil
		}
		if err := a.decide(ctx); err != nil {
			return err
		}
	}
	most := a.ahead()
	if chains, err := a.knowsChains(ctx); err != nil {
		return err
	} else if !chains {
		most = 1
	}
	// Half of them at a time: each submit of several cells takes one write of the record.
	if len(flying) > most/2 || len(flying) == most || a.isBroken(flying) {
		return nil
	}
	a.run().RetryAt = nil
	added := a.board(most - len(flying))
	if added == 0 {
		return nil
	}
	if err := a.save(); err != nil {
		a.unboard(added)
		return err
	}
	return a.send(ctx, added)
}

// ahead is how many cells may be in flight: fewer after a failure, which cancels all that follow
// it, because where one cell failed others may fail too. Each success doubles them again.
func (a *advance) ahead() int {
	runs, most := a.record.Life.Runs, afterFailure
	for i := len(runs) - 1; i >= 0 && most < window && runs[i].Status != CellFailed; i-- {
		most *= 2
		if i == 0 {
			return window
		}
	}
	if len(runs) == 0 {
		return window
	}
	return min(most, window)
}

// isBroken reports whether what is in flight is being cancelled, because a cell before it did not
// succeed. What is submitted before the last of it has landed would be cancelled too.
func (a *advance) isBroken(flying []*Flight) bool {
	if len(flying) == 0 {
		return false
	}
	f, life := flying[0], &a.record.Life
	switch {
	case f.Withdrawn:
		return true
	case f.AfterRequestID == "":
		return false
	}
	return f.AfterRequestID != life.LastRequestID || !f.AfterAny && !life.lastSucceeded()
}

// knowsChains reports whether the executor heeds after_request_id. It asks each one once.
func (a *advance) knowsChains(ctx context.Context) (bool, error) {
	if known := a.record.Chains; known.InstanceID != "" && known.InstanceID == a.vm.InstanceID() {
		return known.Known, nil
	}
	p, err := a.vm.Probe(ctx)
	if err != nil {
		return false, err
	}
	a.record.Chains = Chains{a.vm.InstanceID(), p.Limits.AfterRequestID}
	return p.Limits.AfterRequestID, nil
}

// flying returns the flights whose end is not recorded.
func (a *advance) flying() (all []*Flight) {
	for _, f := range a.run().Flights {
		if !f.Ended {
			all = append(all, f)
		}
	}
	return all
}

// board makes the flights of the next cells, at most n, and returns how many they are.
func (a *advance) board(n int) (added int) {
	inFlight, before := map[string]bool{}, (*Flight)(nil)
	for _, f := range a.flying() {
		inFlight[f.Handle], before = true, f
	}
	if before != nil && a.endsChain(before) {
		return 0
	}
	for i := range a.run().Plan {
		c := &a.run().Plan[i]
		if added == n {
			break
		}
		if !c.pending() || inFlight[c.Handle] || a.passOver(c) {
			continue
		}
		before = a.newFlight(c, before)
		if added++; a.endsChain(before) {
			break
		}
	}
	return added
}

// passOver decides whether a pending cell is not to be run, and says why.
func (a *advance) passOver(c *CellRecord) bool {
	now := a.view.byHandle[c.Handle]
	switch {
	case now == nil:
		c.Why = "the cell was deleted before it ran"
	case a.passedOver(now) != "":
		c.Why = a.passedOver(now)
	case a.spec.OnError == StopOnError && !a.isForced(now) && a.run().firstFailed() != nil:
		c.Why, c.Stopped = "the run stopped because the cell "+a.run().firstFailed().Handle+" did not succeed", true
	}
	return c.Why != ""
}

// passedOver says why the notebook itself asks not to run a cell; empty if it does not.
func (a *advance) passedOver(c *cell) string {
	switch {
	case c.has(tagSkip):
		return "the cell has the tag " + tagSkip
	case c.has(tagFrozen) && a.record.cleanSince(c):
		return "the cell has the tag " + tagFrozen + " and has succeeded in this kernel"
	}
	return ""
}

// firstFailed returns the first cell that did not succeed; nil for none.
func (r *RunRecord) firstFailed() *CellRecord {
	for i := range r.Plan {
		if r.Plan[i].Status.failed() {
			return &r.Plan[i]
		}
	}
	return nil
}

// endsChain reports whether nothing may follow a flight before its end: the state is saved first.
func (a *advance) endsChain(f *Flight) bool {
	c := a.view.byHandle[f.Handle]
	return c != nil && c.has(tagSaveState) && a.savesStates()
}

// newFlight adds the flight of a cell, which follows the flight before, or what ran last.
func (a *advance) newFlight(c *CellRecord, before *Flight) *Flight {
	now := a.view.byHandle[c.Handle]
	f := &Flight{
		Handle: c.Handle, RequestID: rand.Text(), InstanceID: a.vm.InstanceID(),
		Source: now.source, Sent: now.sent, Timeout: a.timeout(now), SubmittedAt: time.Now().UTC(),
	}
	if a.record.Chains.Known {
		f.AfterRequestID, f.AfterAny = a.record.Life.LastRequestID, true
		if before != nil {
			f.AfterRequestID, f.AfterAny = before.RequestID, a.goesOnAfter(before)
		}
		f.AfterAny = f.AfterAny && f.AfterRequestID != ""
	}
	c.Source, c.Sent, c.Index, c.Title = now.source, now.sent, now.index, now.title
	c.addAttempt(Attempt{RequestID: f.RequestID, InstanceID: f.InstanceID, Sent: f.SubmittedAt})
	a.run().Flights = append(a.run().Flights, f)
	a.record.keepCode(now)
	a.record.Singles = slices.DeleteFunc(a.record.Singles, func(s *Single) bool { return s.Ended && s.Handle == f.Handle })
	return f
}

func (c *CellRecord) addAttempt(at Attempt) {
	c.Attempts = append(c.Attempts, at)
	if extra := len(c.Attempts) - maxAttempts; extra > 0 {
		c.Attempts = c.Attempts[extra:]
	}
}

// goesOnAfter reports whether the next cell runs after a flight however that ends. A cell that
// may be retried is not followed so, because its retry comes first.
func (a *advance) goesOnAfter(f *Flight) bool {
	c := a.view.byHandle[f.Handle]
	switch {
	case c == nil:
		return false
	case c.has(tagExpectFailure):
		return true
	}
	return a.spec.OnError == ContinueAfter && !a.mayRetry(c)
}

// timeout is how many seconds a cell may take: its own time, or what is left of the run's.
func (a *advance) timeout(c *cell) float64 {
	seconds := c.timeout(a.spec.CellTimeout)
	if end := a.deadline(); !end.IsZero() {
		seconds = min(seconds, max(1, time.Until(end).Seconds()))
	}
	return seconds
}

// unboard removes the newest flights, which were certainly not accepted.
func (a *advance) unboard(n int) {
	run := a.run()
	for ; n > 0; n-- {
		last := run.Flights[len(run.Flights)-1]
		run.Flights = run.Flights[:len(run.Flights)-1]
		run.cell(last.Handle).dropAttempt(last.RequestID)
	}
}

// dropAttempt removes an attempt that did not run.
func (c *CellRecord) dropAttempt(requestID string) {
	for i := range c.Attempts {
		if c.Attempts[i].RequestID == requestID {
			c.Attempts = append(c.Attempts[:i], c.Attempts[i+1:]...)
			break
		}
	}
	if c.Status == CellQueued || c.Status == CellRunning {
		c.Status = CellNotRun
	}
}

// send submits the newest n flights.
func (a *advance) send(ctx context.Context, n int) error {
	added := a.run().Flights[len(a.run().Flights)-n:]
	for i, f := range added {
		err := a.submit(behind(ctx, len(a.flying())-n+i), f)
		if err == nil {
			continue
		}
		var refused *contract.Error
		if !errors.As(err, &refused) {
			return err // it may have been accepted
		}
		a.unboard(n - i)
		switch {
		case refused.Code == contract.CodeNewInstance:
			return a.meetVM(ctx)
		case refused.Code == contract.CodeQueueFull && len(a.flying()) > 0:
			return nil // those before make room
		}
		return err
	}
	return nil
}

// behind is the ctx of the submit of a flight that has others before it. They can be read while
// the queue is full, so the submit does not wait for a place.
func behind(ctx context.Context, others int) context.Context {
	if others == 0 {
		return ctx
	}
	return client.WithQueueFull(ctx)
}

// submit submits a flight, for the first time or again.
func (a *advance) submit(ctx context.Context, f *Flight) error {
	wait := 0.0
	if !a.record.Chains.Known {
		wait = max(0, min(singleWait, time.Until(a.until())*9/10).Seconds())
	}
	e, err := a.vm.SubmitTo(ctx, f.InstanceID, f.submit(a.view.byHandle[f.Handle].code, wait))
	if err != nil {
		return err
	}
	f.ExecutionID = e.ExecutionID
	c := a.run().cell(f.Handle)
	c.Status = CellQueued
	if at := c.attempt(f.RequestID); at != nil {
		at.ExecutionID = e.ExecutionID
	}
	if wait > 0 {
		a.reading(f).first = &e
	}
	return nil
}

// submit is the flight's submit. The same flight always makes the same one.
func (f *Flight) submit(code string, wait float64) contract.Submit {
	return contract.Submit{
		RequestID: f.RequestID, Code: code, TimeoutSeconds: f.Timeout, WaitSeconds: wait, BehindInput: true,
		AfterRequestID: f.AfterRequestID, AfterAny: f.AfterAny,
	}
}

// attempt returns the attempt with a request_id; nil for none.
func (c *CellRecord) attempt(requestID string) *Attempt {
	for i := range c.Attempts {
		if c.Attempts[i].RequestID == requestID {
			return &c.Attempts[i]
		}
	}
	return nil
}
