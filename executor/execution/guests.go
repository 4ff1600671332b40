package execution

import (
	"context"
	"fmt"
	"slices"
	"time"

	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
)

const (
	// soonFree is how long a call waits for the execution or the call that has the kernel.
	// Two concurrent inspections of the variables take about 10 ms each. A cleanup may take
	// longer, and an execution that has ended for its readers may never yield the kernel.
	soonFree = 2 * time.Second
	// maxGuests is how many calls wait at the same time.
	maxGuests = 128
)

// BusyError is ErrKernelBusy, and the execution that has the kernel.
type BusyError struct{ Behind contract.Behind }

func (e *BusyError) Error() string {
	return fmt.Sprintf("run %s is using the kernel", e.Behind.ExecutionID)
}

// Is makes it an ErrKernelBusy.
func (e *BusyError) Is(target error) bool { return target == ErrKernelBusy }

// busyLocked returns why the kernel is not idle.
func (q *Queue) busyLocked() error {
	if b := q.behindLocked(); b != nil {
		return &BusyError{*b}
	}
	return ErrKernelBusy
}

// guests are the calls of WithIdleKernel.
type guests struct {
	waiting []chan struct{} // one for each call, closed when it gets the kernel
	first   int             // how many of them get it before the next execution
	lent    bool            // a call has the kernel
}

// WithIdleKernel calls f with an idle kernel, which no execution gets until f returns.
// f's context ends with the kernel. When an execution ends, all calls that wait have the
// kernel before the next one, so that they get it also while the queue is never empty.
//
// The error is ErrKernelBusy if the call does not get the kernel within soonFree, or an execution has
// had it for that long already, and kernel.ErrStarting or kernel.ErrDead if there is no kernel.
func (q *Queue) WithIdleKernel(ctx context.Context, f func(ctx context.Context, k *kernel.Kernel) error) error {
	turn, err := q.visit()
	if err == nil {
		err = q.await(ctx, turn)
	}
	if err != nil {
		return err
	}
	defer q.giveBack()
	k, err := q.cfg.Kernel.Ready()
	if err != nil {
		return err
	}
	ctx, cancel := k.WhileRunning(ctx)
	defer cancel()
	err = f(ctx, k)
	select {
	case <-k.Done():
		return fmt.Errorf("%w: the kernel ended during the call: %s", kernel.ErrStarting, k.Reason())
	default:
		return err
	}
}

// visit queues a call. The channel is closed when the call has the kernel.
func (q *Queue) visit() (turn chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, err := q.cfg.Kernel.Ready(); err != nil {
		return nil, err
	}
	goesOn := q.running != nil && !q.running.Status().Finished() && time.Since(q.since) >= soonFree
	if goesOn || len(q.guests.waiting) >= maxGuests {
		return nil, q.busyLocked()
	}
	turn = make(chan struct{})
	q.guests.waiting = append(q.guests.waiting, turn)
	q.lendLocked()
	return turn, nil
}

// await waits until the call has the kernel.
func (q *Queue) await(ctx context.Context, turn chan struct{}) error {
	limit := time.NewTimer(soonFree)
	defer limit.Stop()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return q.leave(turn, ctx.Err())
	case <-limit.C:
		return q.leave(turn, nil)
	}
}

// leave gives up the turn of a call that waits. If the call has the kernel by now, there is no
// error. Without a reason, the error says that the kernel is busy.
func (q *Queue) leave(turn chan struct{}, reason error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.guests.waiting, turn)
	if i < 0 {
		return nil
	}
	q.guests.waiting = slices.Delete(q.guests.waiting, i, i+1)
	q.guests.first = min(q.guests.first, len(q.guests.waiting))
	if reason == nil {
		reason = q.busyLocked()
	}
	return reason
}

// lendLocked lends the kernel to the next call if it is free and no execution comes first.
func (q *Queue) lendLocked() {
	g := &q.guests
	if q.current != nil || g.lent || len(g.waiting) == 0 || g.first == 0 && q.readyLocked() {
		return
	}
	close(g.waiting[0])
	g.waiting = slices.Delete(g.waiting, 0, 1)
	g.first = max(g.first-1, 0)
	g.lent = true
}

func (q *Queue) giveBack() {
	q.mu.Lock()
	q.guests.lent = false
	q.lendLocked()
	q.mu.Unlock()
	q.signal()
}
