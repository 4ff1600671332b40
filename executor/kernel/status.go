package kernel

import (
	"context"
	"errors"
	"fmt"

	"colabrelay/shared/contract"
)

// Await waits until a kernel is ready. The error is ErrDead if no kernel is started any
// more, ErrStopped after Run has ended, or that of ctx.
func (s *Supervisor) Await(ctx context.Context) (*Kernel, error) {
	for {
		changed := s.Changed()
		k, err := s.Ready()
		if !errors.Is(err, ErrStarting) {
			return k, err
		}
		select {
		case <-changed:
		case <-s.stopped:
			return nil, ErrStopped
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Ready returns the kernel that is ready. The error is ErrStarting or ErrDead.
func (s *Supervisor) Ready() (*Kernel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.kernel != nil:
		return s.kernel, nil
	case s.status == contract.KernelDead:
		return nil, fmt.Errorf("%w: it died %d times in a row, and no run succeeded in between; last: %s", ErrDead, maxDeaths, s.reason)
	}
	return nil, ErrStarting
}

// Changed returns a channel that is closed at the next change of kernel or status.
func (s *Supervisor) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Status returns what is reported of the kernel. A kernel that is ready counts as idle:
// only the caller that runs code on it knows whether it is busy.
func (s *Supervisor) Status() contract.Kernel {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := contract.Kernel{
		Status:         s.status,
		Python:         s.cfg.Python.Version,
		IPyKernel:      s.cfg.Python.IPyKernel,
		KernelsStarted: s.started,
		Reason:         s.reason,
	}
	if s.kernel != nil {
		started := s.kernel.Started.UTC()
		status.KernelID, status.PID, status.StartedAt = s.kernel.ID, s.kernel.PID(), &started
	}
	return status
}

// restart asks for another kernel than the one with this id.
type restart struct {
	kernelID string
	done     chan error // buffered; gets nil when the next kernel is ready
}

// Restart ends the kernel with the given id and returns when the next one is ready. If
// another kernel is current, it only waits until that one is ready. After ErrDead it
// starts a kernel whatever the id is.
func (s *Supervisor) Restart(ctx context.Context, kernelID string) error {
	done := make(chan error, 1)
	select {
	case s.restarts <- restart{kernelID, done}:
	case <-s.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Record writes kernel.json again after the state directory was deleted. By it the next
// executor ends what outlives a kill of this one.
func (s *Supervisor) Record() error {
	k, err := s.Ready()
	if err != nil {
		return nil // the next kernel writes its own
	}
	return writeRecord(k.process.record, k.process.pid)
}
