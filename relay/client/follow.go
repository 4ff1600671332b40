package client

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

const (
	// leastWait is the shortest long poll that is worth a request.
	leastWait = 250 * time.Millisecond
	// An answer that arrives within quickAnswer comes from an execution that prints
	// all the time. The next request then waits a tenth of the time spent reading so
	// far, at most maxSpacing: without that such an execution costs 20 requests a second.
	quickAnswer = 500 * time.Millisecond
	maxSpacing  = 2 * time.Second
	// crowdPause is how long a call waits while others hold too many events.
	crowdPause = 100 * time.Millisecond
	// largestEvent is more than an executor puts into one event, which must always find room.
	largestEvent = 600 << 10
	// maxEndPages bounds the answers that Follow reads after the execution has finished. An
	// executor keeps 256 MiB of events, which pages of 64 KiB read in so many.
	maxEndPages = 4096
)

// ExecutionReader reads pages of an execution's events. *Client implements it.
type ExecutionReader interface {
	Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error)
	InstanceID() string
}

// FollowOptions are what differs between the callers of Follow.
type FollowOptions struct {
	// Visit gets each answer: the execution, the events that were not visited before,
	// and the offset after them in NextOffset. It reports whether to read on.
	Visit func(e contract.Execution) (more bool)
	// From is the offset of the first event to visit.
	From int64
	// Next is called before each request and returns the offset to read from; nil means
	// after the last event visited.
	Next func() int64
	// Until is when Follow returns although the execution has not finished; zero means
	// never. The events of a finished execution are read to the end regardless.
	Until time.Time
	// Available limits Follow to the events that exist already.
	Available bool
	// FirstBytes is the size asked for in the answer that Follow begins with. Each
	// request asks for twice the size of the one before, up to MaxBytes. Zero means
	// MaxBytes from the first request on.
	FirstBytes int64
	MaxBytes   int64 // of one answer; 0 leaves it to the executor
	// Spacing returns how long to wait before the next request, and replaces the usual
	// spacing of answers that arrive quickly.
	Spacing func() time.Duration
	// Instance is the executor that runs the execution. When another one answers that
	// it does not know the execution, Follow fails with new_instance. Empty skips this.
	Instance string
}

// Follow reads an execution until its end is read, it waits for input, or a caller's
// condition in o holds. It begins with the answer e, or with e.ExecutionID alone when
// e.Status is empty. It returns the execution as last read, without events; an error
// means that reading failed, and does not affect the execution.
func Follow(ctx context.Context, vm ExecutionReader, e contract.Execution, o FollowOptions) (contract.Execution, error) {
	f := &follower{vm: vm, o: o, last: contract.Execution{ExecutionID: e.ExecutionID}, next: o.From, asked: o.FirstBytes, began: time.Now()}
	defer f.release()
	if e.Status != "" && !f.visit(e) {
		return f.last, nil
	}
	for f.timeLeft() {
		if err := f.pause(ctx); err != nil {
			return f.last, err
		}
		e, err := f.read(ctx)
		if err == nil {
			err = f.countEndPage(e.Status)
		}
		if err != nil || !f.visit(e) {
			return f.last, err
		}
	}
	return f.last, nil
}

// release returns the room for events that were taken in.
func (f *follower) release() {
	memory.Events.Return(f.taken)
	f.taken = 0
}

// countEndPage counts an answer of an execution that has finished. Without a bound, an executor
// that never says that it was the last one would hold the caller for ever.
func (f *follower) countEndPage(status contract.Status) error {
	if !status.Finished() {
		return nil
	}
	if f.endPages++; f.endPages > maxEndPages {
		return breaksBounds(fmt.Sprintf("the execution has finished, but its events do not end after %d answers", maxEndPages), nil)
	}
	return nil
}

// follower is one call of Follow.
type follower struct {
	vm      ExecutionReader
	o       FollowOptions
	last    contract.Execution // as last read, without events; its Status is empty before
	next    int64              // offset of the next event
	asked   int64              // size asked for in the last request, 0 for the default one
	taken   int64              // of memory.Events, for the last request
	behind  bool               // more events probably exist already
	crowded bool               // there was no room for the last answer's events
	began   time.Time
	elapsed time.Duration // of the last request; 0 before the first

	endPages int // answers that said that it has finished
}

// visit passes e to the caller and reports whether to read on.
func (f *follower) visit(e contract.Execution) bool {
	if f.crowded = !f.hasRoom(e.Events); f.crowded {
		f.last.Status = e.Status // the same events are read again, in smaller pieces
		return true
	}
	e.Events = f.unvisited(e.Events)
	f.next = max(f.next, e.NextOffset)
	e.NextOffset = f.next
	f.last = e
	f.last.Events = nil
	f.behind = f.full(e.Events) || e.Status.Finished() && len(e.Events) > 0
	more := f.o.Visit(e)
	f.release()
	switch {
	case !more, e.End, f.o.Available && !f.behind:
		return false
	case e.Status == contract.StatusWaitingForInput:
		n := len(e.Events)
		return n > 0 && e.Events[n-1].Type != contract.EventInputRequest
	}
	return true
}

// unvisited returns the events from f.next on, and moves f.next past them.
func (f *follower) unvisited(events []contract.Event) []contract.Event {
	fresh := events[:0:0]
	for _, ev := range events {
		if ev.Offset < f.next {
			continue
		}
		f.next = ev.Offset + 1
		if ev.Type == contract.EventGap {
			f.next = ev.Offset + max(ev.Events, 1)
		}
		fresh = append(fresh, ev)
	}
	return fresh
}

// full reports whether an answer is so close to the size asked for that the next
// events probably exist already.
func (f *follower) full(events []contract.Event) bool {
	return eventBytes(events) > cmp.Or(f.asked, contract.DefaultReadBytes)/2
}

// timeLeft reports whether another request is worth it.
func (f *follower) timeLeft() bool {
	return f.o.Available || f.last.Status == "" || f.last.Status.Finished() || f.left() >= leastWait
}

func (f *follower) left() time.Duration {
	if f.o.Until.IsZero() {
		return contract.MaxWait
	}
	return time.Until(f.o.Until)
}

// hasRoom reports whether there is room in the process for events that were not asked for with a part
// of memory.Events.
func (f *follower) hasRoom(events []contract.Event) bool {
	size := eventBytes(events)
	if f.taken > 0 || size <= largestEvent {
		return true
	}
	if !memory.Events.Take(size) {
		return false
	}
	f.taken = size
	return true
}

// pause spaces requests out, unless the events to read exist already.
func (f *follower) pause(ctx context.Context) error {
	if !f.crowded && (f.behind || f.last.Status == "") {
		return nil
	}
	select {
	case <-time.After(min(f.spacing(), f.left())):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *follower) spacing() time.Duration {
	switch {
	case f.crowded:
		return crowdPause
	case f.o.Spacing != nil:
		return f.o.Spacing()
	case f.elapsed == 0 || f.elapsed >= quickAnswer:
		return 0
	}
	return min(time.Since(f.began)/10, maxSpacing)
}

// read requests the next events.
func (f *follower) read(ctx context.Context) (contract.Execution, error) {
	f.asked = f.o.MaxBytes
	if f.o.FirstBytes > 0 {
		f.o.FirstBytes *= 2
		f.asked = min(f.o.FirstBytes, f.o.MaxBytes)
	}
	if f.asked > memory.Small && !(f.behind && memory.Events.Take(f.asked)) {
		f.asked = memory.Small // until there is much to read, and room for it
	} else if f.asked > memory.Small {
		f.taken = f.asked
	}
	wait := max(0, min(f.left(), contract.MaxWait))
	if f.o.Available || f.taken > 0 { // what takes room is read at once
		wait = 0
	}
	if f.o.Next != nil {
		f.next = f.o.Next()
	}
	started := time.Now()
	e, err := f.vm.Execution(ctx, f.last.ExecutionID, f.next, wait, f.asked)
	f.elapsed = time.Since(started)
	return e, f.replaced(err)
}

// replaced returns new_instance in place of a not_found of another executor.
func (f *follower) replaced(err error) error {
	refused := refusal(err)
	if refused == nil || refused.Code != contract.CodeNotFound || f.o.Instance == "" || f.vm.InstanceID() == f.o.Instance {
		return err
	}
	return &contract.Error{Code: contract.CodeNewInstance, Message: "the VM behind this address is a new one; the run ended with the old VM", Hint: "run the setup code again"}
}
