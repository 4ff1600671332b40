package journal

import (
	"context"
	"fmt"
	"time"

	"colabrelay/shared/contract"
)

// ReadRequest selects a part of an execution and says how long to wait for it.
type ReadRequest struct {
	Offset   int64
	Wait     time.Duration
	MaxBytes int64 // of events; 0 means contract.DefaultReadBytes
	UntilEnd bool  // wait for the end or an input request, not for the first event
	// EventsAfter, when not 0, limits UntilEnd: after this time an event ends the wait too.
	EventsAfter time.Duration
	// BehindInput ends the wait as soon as the execution is queued behind one that waits for
	// input.
	BehindInput bool
	NoEvents    bool // return the state only
}

// Read waits until the execution has what r asks for, or until r.Wait is over, and
// returns its state and events then. The error may be ErrNotFound or ErrBadOffset.
func (j *Journal) Read(ctx context.Context, id string, r ReadRequest) (contract.Execution, error) {
	record, err := j.Find(id)
	if err != nil {
		return contract.Execution{}, err
	}
	end := time.NewTimer(r.Wait)
	defer end.Stop()
	var eventsAfter <-chan time.Time
	if r.UntilEnd && r.EventsAfter > 0 {
		timer := time.NewTimer(r.EventsAfter)
		defer timer.Stop()
		eventsAfter = timer.C
	}
	for waited := false; ; waited = true {
		changed := record.changes(r.UntilEnd)
		if record.satisfies(r) {
			if waited {
				record.awaitEnd(ctx)
			}
			return record.read(r)
		}
		select {
		case <-changed:
		case <-eventsAfter:
			r.UntilEnd = false
		case <-end.C:
			return record.read(r)
		case <-ctx.Done():
			return contract.Execution{}, ctx.Err()
		}
	}
}

// satisfies reports whether r can be answered now.
func (r *Record) satisfies(request ReadRequest) bool {
	x := r.Snapshot()
	if settled(x.Status) || request.BehindInput && behindInput(x) {
		return true
	}
	return !request.UntilEnd && x.NextOffset > request.Offset
}

// endGrace is how long an answer with new events waits for the end of the execution.
// The last output and the end come within a moment; apart they cost two requests.
const endGrace = 5 * time.Millisecond

// awaitEnd returns when the execution has finished, or after endGrace.
func (r *Record) awaitEnd(ctx context.Context) {
	if r.Snapshot().Status.Finished() {
		return
	}
	timer := time.NewTimer(endGrace)
	defer timer.Stop()
	for {
		changed := r.changes(true)
		if r.Snapshot().Status.Finished() {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (r *Record) read(request ReadRequest) (contract.Execution, error) {
	x := r.Snapshot() // before the events: one that finishes in between has no End yet
	if request.NoEvents {
		return x, nil
	}
	if request.Offset > x.NextOffset {
		if x.Status == contract.StatusLost { // a kill took events that the caller has read already
			x.End = true
			return x, nil
		}
		return x, fmt.Errorf("%w: %d is past %d", ErrBadOffset, request.Offset, x.NextOffset)
	}
	if request.MaxBytes == 0 {
		request.MaxBytes = contract.DefaultReadBytes
	}
	events, next, err := r.events.read(request.Offset, request.MaxBytes)
	if err != nil {
		return x, fmt.Errorf("reading the execution log: %w", err)
	}
	x.Events, x.NextOffset = events, next
	r.fetchedUpTo(request.Offset, next)
	x.End = x.Status.Finished() && next >= r.events.end()
	return x, nil
}

// fetchedUpTo notes that the events between two offsets were read.
func (r *Record) fetchedUpTo(from, next int64) {
	for before := r.fetched.Load(); from <= before && before < next; before = r.fetched.Load() {
		if r.fetched.CompareAndSwap(before, next) {
			return
		}
	}
}
