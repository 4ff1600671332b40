// Package kernel keeps one ipykernel running. It starts the process, waits until it
// answers, interrupts it, ends it, notices its death and starts the next one.
//
// It knows nothing of executions or HTTP, and leaves every message to its user, who runs
// code. Each process is a Kernel with its own ID: a new ID means that all variables
// are gone. Start reading at Supervisor.Run.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"colabrelay/executor/account"
	"colabrelay/shared/contract"
)

const (
	// readyTimeout is generous: on a cold Colab disk, importing IPython took 20 s.
	readyTimeout = 90 * time.Second
	// maxDeaths is how many kernels in a row may die within settled of their start, and
	// without a run that succeeded, before the supervisor stops restarting them.
	maxDeaths = 5
	settled   = 10 * time.Second
)

// Reasons why there is no kernel.
var (
	// ErrDead means that the kernel died too often in a row and waits for Restart.
	ErrDead = errors.New("kernel is dead")
	// ErrStarting means that the kernel is not ready yet.
	ErrStarting = errors.New("kernel is starting")
	// ErrStopped means that Run has ended.
	ErrStopped = errors.New("kernel is shut down")
)

// Config says which kernel to run and where.
type Config struct {
	Python   Python   // from Find
	WorkDir  string   // the kernel's working directory
	StateDir string   // holds the record by which the next executor ends a leftover kernel
	Place    string   // where the state folder is; marks the kernel's folders in the temp folder
	Environ  []string // like os.Environ; secrets are removed
	// User runs the kernel; nil means this process's own user. It is marked by User.For.
	User *account.User
	// MaxMessageBytes bounds what is held of one message; 0 means jupyter's default.
	MaxMessageBytes int64
	Log             *slog.Logger
}

// Supervisor runs one kernel process after another.
type Supervisor struct {
	cfg      Config
	log      *slog.Logger
	restarts chan restart
	stopped  chan struct{} // closed when Run ends

	mu      sync.Mutex
	kernel  *Kernel       // nil unless it is ready
	changed chan struct{} // closed when kernel or status changes, then replaced
	status  contract.KernelStatus
	started int    // kernels that became ready
	reason  string // why the last one ended
}

// New makes a supervisor; Run starts the kernel.
func New(cfg Config) *Supervisor {
	return &Supervisor{
		cfg:      cfg,
		log:      cfg.Log.With("component", "kernel"),
		restarts: make(chan restart),
		stopped:  make(chan struct{}),
		changed:  make(chan struct{}),
		status:   contract.KernelStarting,
	}
}

// Run starts the kernel, and again whenever it dies, until ctx ends. Then it ends the
// process and all that the process started. It returns an error only if no kernel ever
// became ready.
func (s *Supervisor) Run(ctx context.Context) error {
	defer close(s.stopped)
	if err := endLeftover(s.cfg.StateDir); err != nil {
		s.log.Warn("ending a leftover kernel", "err", err)
	}
	s.endAll()
	defer s.endAll()
	deaths := 0
	var waiting chan error // gets the result of the restart that was asked for
	for ctx.Err() == nil {
		k, err := s.start(ctx)
		if err == nil {
			s.set(k, contract.KernelIdle)
			answer(waiting, nil)
			began := time.Now()
			waiting = s.watch(ctx, k)
			if time.Since(began) >= settled || k.succeeded.Load() || waiting != nil {
				deaths = 0
			}
		} else {
			s.setReason(err.Error())
		}
		if ctx.Err() != nil {
			break
		}
		if waiting != nil && err == nil {
			continue // it was restarted and did not die
		}
		if deaths++; deaths < maxDeaths {
			continue
		}
		answer(waiting, fmt.Errorf("%w: %s", ErrDead, s.Status().Reason))
		if err != nil && s.Status().KernelsStarted == 0 {
			return fmt.Errorf("starting the kernel with %q: %w", s.cfg.Python.Path, err)
		}
		waiting = s.awaitRestart(ctx)
		deaths = 0
	}
	answer(waiting, ErrStopped)
	return nil
}

// watch returns when k has ended: the channel for the result of the restart that ended
// it, or nil.
func (s *Supervisor) watch(ctx context.Context, k *Kernel) (waiting chan error) {
	waiting = s.awaitEnd(ctx, k)
	s.set(nil, contract.KernelStarting)
	s.setReason(k.Reason())
	k.close()
	if k.process.left != nil {
		s.log.Warn("ending the kernel's processes", "kernel_id", k.ID, "err", k.process.left)
	}
	s.log.Info("kernel ended", "kernel_id", k.ID)
	return waiting
}

// awaitEnd returns when k has ended. A restart of an earlier kernel has already happened:
// callers that ask for one at the same time share it.
func (s *Supervisor) awaitEnd(ctx context.Context, k *Kernel) (waiting chan error) {
	for {
		select {
		case <-k.Done():
			s.log.Warn("kernel died", "kernel_id", k.ID, "reason", k.Reason())
			return nil
		case r := <-s.restarts:
			if r.kernelID != k.ID {
				answer(r.done, nil)
				continue
			}
			k.endForRestart()
			return r.done
		case <-ctx.Done():
			k.end("the executor shut down")
			return nil
		}
	}
}

// awaitRestart waits, without a kernel, until a restart of any kernel is asked for.
func (s *Supervisor) awaitRestart(ctx context.Context) (waiting chan error) {
	s.set(nil, contract.KernelDead)
	s.log.Error("the kernel died too often and is not started again until a restart is requested", "deaths", maxDeaths)
	select {
	case r := <-s.restarts:
		waiting = r.done
		s.set(nil, contract.KernelStarting)
	case <-ctx.Done():
	}
	return waiting
}

// answer sends the result of a restart, if one was asked for.
func answer(waiting chan error, err error) {
	if waiting != nil {
		waiting <- err // buffered
	}
}

func (s *Supervisor) start(ctx context.Context) (*Kernel, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := removeRemains(s.cfg.User, ownerOf(s.cfg.Place)); err != nil {
		s.log.Warn("removing the files of a killed kernel", "err", err)
	}
	k, err := startKernel(ctx, s.cfg)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.started++
	s.mu.Unlock()
	s.log.Info("kernel ready", "kernel_id", k.ID, "pid", k.PID(), "dur", time.Since(k.Started))
	return k, nil
}

// endAll ends whatever code of another user has left running.
func (s *Supervisor) endAll() {
	if err := s.cfg.User.EndAll(); err != nil {
		s.log.Warn("ending the kernel's processes", "err", err)
	}
}

func (s *Supervisor) set(k *Kernel, status contract.KernelStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kernel, s.status = k, status
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Supervisor) setReason(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = reason
}
