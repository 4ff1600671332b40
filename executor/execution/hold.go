package execution

import (
	"context"
	"fmt"
	"time"

	"colabrelay/executor/kernel"
)

// holdPatience bounds the wait for a kernel that is about to be free. Two looks at the
// variables at once take some 10 ms each; a cleanup may take longer, and an execution
// that ended for its readers may never yield the kernel.
const holdPatience = 2 * time.Second

// WithIdleKernel calls f with an idle kernel that no execution can take meanwhile. It
// returns ErrKernelBusy at once when an execution has the kernel or waits for it,
// and kernel.ErrStarting or kernel.ErrDead when there is none. For another WithIdleKernel, and
// for an execution that has ended and is about to give the kernel back, it waits up
// to holdPatience.
func (q *Queue) WithIdleKernel(ctx context.Context, f func(ctx context.Context, life *kernel.Kernel) error) error {
	life, err := q.acquireSoon(ctx)
	if err != nil {
		return err
	}
	defer q.release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-life.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	err = f(ctx, life)
	select {
	case <-life.Done():
		return fmt.Errorf("%w: it ended meanwhile: %s", kernel.ErrStarting, life.Reason())
	default:
		return err
	}
}

// acquireSoon is acquire that waits while the kernel is about to be free.
func (q *Queue) acquireSoon(ctx context.Context) (*kernel.Kernel, error) {
	patience := time.NewTimer(holdPatience)
	defer patience.Stop()
	for {
		life, freed, err := q.acquire()
		if freed == nil {
			return life, err
		}
		select {
		case <-freed:
		case <-patience.C:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// acquire takes the kernel. Where that fails only for the moment, freed is closed
// when another try may succeed.
func (q *Queue) acquire() (life *kernel.Kernel, freed <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.pending) > 0, q.running != nil && !q.running.snapshot().Status.Finished():
		return nil, nil, ErrKernelBusy
	case q.held, q.running != nil:
		return nil, q.freed, ErrKernelBusy
	}
	life, err = q.cfg.Kernel.Ready()
	q.held = err == nil
	return life, nil, err
}

func (q *Queue) release() {
	q.mu.Lock()
	q.held = false
	q.wakeHolds()
	q.mu.Unlock()
	q.signal()
}

// wakeHolds tells those who wait for the kernel that it is free. The lock is held.
func (q *Queue) wakeHolds() {
	close(q.freed)
	q.freed = make(chan struct{})
}
