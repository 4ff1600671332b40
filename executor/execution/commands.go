package execution

import (
	"context"
	"errors"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

// command is a request to the runner, the only goroutine that touches the running
// execution.
type command struct {
	id     string
	do     func(*runner) error
	answer chan error // buffered
}

// errNotCurrent means that the execution does not have the kernel.
var errNotCurrent = errors.New("the execution does not have the kernel")

// Interrupt cancels a waiting execution or interrupts a running one, and returns it
// when the interrupt took effect, or after yieldTime. A run that still has the kernel is
// interrupted again, unless its last interrupt is younger than repeatTime. The error is
// ErrFinished if there is nothing to interrupt.
func (q *Queue) Interrupt(ctx context.Context, id string) (contract.Execution, error) {
	record, err := q.journal.Find(id)
	if err != nil {
		return contract.Execution{}, err
	}
	if q.cancel(id, "cancelled before it started") {
		return record.Snapshot(), nil
	}
	err = q.send(ctx, id, (*runner).interruptAsked)
	if errors.Is(err, errNotCurrent) {
		err = ErrFinished
	}
	if err != nil {
		return contract.Execution{}, err
	}
	return q.journal.Read(ctx, id, journal.ReadRequest{Wait: yieldTime, UntilEnd: true, NoEvents: true})
}

// Input answers the input() call that the execution waits in. The error is ErrNotWaiting
// if it does not wait in one, ErrOtherPrompt if it waits in another one than in.Offset names,
// and ErrPassword if it asks for a password and in does not say that it is one.
func (q *Queue) Input(ctx context.Context, id string, in contract.Input) error {
	attempt := id + " " + in.InputID
	if last := q.lastInput.Load(); in.InputID != "" && last != nil && *last == attempt {
		return nil // the answer to an earlier attempt was lost
	}
	record, err := q.journal.Find(id)
	if err != nil {
		return err
	}
	if record.Snapshot().Status.Finished() {
		return ErrFinished
	}
	err = q.send(ctx, id, func(r *runner) error {
		defer q.runningChanged(r.current.prompt)
		err := r.current.answerInput(ctx, r.kernel.Client, in)
		if err == nil {
			q.lastInput.Store(&attempt)
		}
		return err
	})
	if errors.Is(err, errNotCurrent) {
		err = ErrNotWaiting
	}
	return err
}

// send has the runner do something with the execution that has the kernel.
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
