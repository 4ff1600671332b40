package execution

import (
	"context"
	"fmt"
	"time"

	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
)

// soonFree bounds the wait for a kernel that is about to become free. Two concurrent
// inspections of the variables take about 10 ms each. A cleanup may take longer, and an
// execution that has ended for its readers may never yield the kernel.
const soonFree = 2 * time.Second

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

// WithIdleKernel calls f with an idle kernel, which no execution gets until f returns.
// f's context ends with the kernel. The error is ErrKernelBusy if an execution has the
// kernel or waits for it, and kernel.ErrStarting or kernel.ErrDead if there is none.
// While another call of WithIdleKernel or an execution that has ended still has the
// kernel, it waits up to soonFree.
func (q *Queue) WithIdleKernel(ctx context.Context, f func(ctx context.Context, k *kernel.Kernel) error) error {
	k, err := q.borrowSoon(ctx)
	if err != nil {
		return err
	}
	defer q.giveBack()
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

// borrowSoon borrows the kernel and waits for it while it is about to become free.
func (q *Queue) borrowSoon(ctx context.Context) (*kernel.Kernel, error) {
	limit := time.NewTimer(soonFree)
	defer limit.Stop()
	for {
		k, freed, err := q.borrow()
		if freed == nil {
			return k, err
		}
		select {
		case <-freed:
		case <-limit.C:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// borrow takes the kernel. If it is about to become free, freed is closed when another
// attempt may succeed.
func (q *Queue) borrow() (k *kernel.Kernel, freed <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.pending) > 0, q.running != nil && !q.running.Snapshot().Status.Finished():
		return nil, nil, q.busyLocked()
	case q.lent, q.running != nil:
		return nil, q.freed, q.busyLocked()
	}
	k, err = q.cfg.Kernel.Ready()
	q.lent = err == nil
	return k, nil, err
}

func (q *Queue) giveBack() {
	q.mu.Lock()
	q.lent = false
	q.kernelFreedLocked()
	q.mu.Unlock()
	q.signal()
}

func (q *Queue) kernelFreedLocked() {
	close(q.freed)
	q.freed = make(chan struct{})
}
