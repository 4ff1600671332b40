package execution

import (
	"context"
	"errors"

	"colabrelay/shared/contract"
)

// command asks the runner, which alone touches the running execution.
type command struct {
	id     string
	do     func(*runner) error
	answer chan error // buffered
}

// Interrupt cancels a queued execution and interrupts a running one. It returns
// the execution as it is once the interrupt took effect, or after yieldTime. One
// that has ended for its readers but not yielded the kernel is interrupted again.
// ErrFinished when there is nothing left to interrupt.
func (q *Queue) Interrupt(ctx context.Context, id string) (contract.Execution, error) {
	e, err := q.find(id)
	if err != nil {
		return contract.Execution{}, err
	}
	if q.cancel(e, "cancelled before it started") {
		return e.snapshot(), nil
	}
	err = q.send(ctx, id, func(r *runner) error { return r.interruptAsked() })
	if errors.Is(err, errNotCurrent) {
		err = ErrFinished
	}
	if err != nil {
		return contract.Execution{}, err
	}
	return q.Read(ctx, id, ReadRequest{Offset: e.log.end(), Wait: yieldTime, UntilEnd: true, NoEvents: true})
}

// Input answers the input() that the execution waits in. ErrNotWaiting when it
// waits in none.
func (q *Queue) Input(ctx context.Context, id, text string) error {
	e, err := q.find(id)
	if err != nil {
		return err
	}
	if e.snapshot().Status.Finished() {
		return ErrFinished
	}
	err = q.send(ctx, id, func(r *runner) error { return r.input(ctx, text) })
	if errors.Is(err, errNotCurrent) {
		err = ErrNotWaiting
	}
	return err
}

// errNotCurrent means that another execution, or none, has the kernel.
var errNotCurrent = errors.New("the execution does not have the kernel")

// Restart ends the running execution, cancels the waiting ones, for they would
// miss its variables, and returns when a new kernel is ready. It does so only when
// kernelID is the current kernel's; otherwise it waits for the current one to be ready.
func (q *Queue) Restart(ctx context.Context, kernelID string) error {
	return q.cfg.Kernel.Restart(ctx, kernelID)
}

// send has the runner do something to the execution that has the kernel.
func (q *Queue) send(ctx context.Context, id string, do func(*runner) error) error {
	c := command{id: id, do: do, answer: make(chan error, 1)}
	select {
	case q.commands <- c:
	case <-q.stopped:
		return ErrShuttingDown
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-c.answer
}

// cancel takes e out of the queue; false when it isn't in it.
func (q *Queue) cancel(e *entry, reason string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, waiting := range q.pending {
		if waiting == e {
			q.pending = append(q.pending[:i], q.pending[i+1:]...)
			e.finish(contract.StatusCancelled, reason, 0)
			q.renumber()
			return true
		}
	}
	return false
}

// cancelAll empties the queue.
func (q *Queue) cancelAll(reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.pending {
		e.finish(contract.StatusCancelled, reason, 0)
	}
	q.pending = nil
}

// take gives the kernel to the next execution, nil when none may have it.
func (q *Queue) take() *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held || q.closing || q.running != nil || len(q.pending) == 0 {
		return nil
	}
	e := q.pending[0]
	q.pending = q.pending[1:]
	q.round = e.round
	q.running = e
	q.renumber()
	return e
}

// yield takes the kernel back.
func (q *Queue) yield() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = nil
	q.wakeHolds()
	q.renumber()
	q.retain()
}
