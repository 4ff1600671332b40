// Package kernel keeps one ipykernel alive: it starts the process, knows when
// it is ready, interrupts it, ends it, notices its death and starts the next.
//
// It knows nothing of executions or HTTP, and leaves every message to the one
// who runs code. Each process is a Life with an ID of its own: a new ID means
// that all variables are gone. Start reading at Kernel.Run.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"colabrelay/shared/contract"
)

const (
	// readyTimeout is generous: a cold Colab disk took 20 s to import IPython.
	readyTimeout = 90 * time.Second
	// maxDeaths in a row, each within settled of its start, and the kernel is given up.
	maxDeaths = 5
	settled   = 10 * time.Second
	// politeTime is what a kernel gets to take a shutdown_request, and again to
	// follow it; termTime what SIGTERM gets before SIGKILL.
	politeTime = 2 * time.Second
	termTime   = time.Second
)

// What may stand between a caller and a kernel that runs.
var (
	// ErrDead means the kernel died too often in a row and waits for Restart.
	ErrDead = errors.New("kernel is dead")
	// ErrStarting means the kernel isn't ready yet.
	ErrStarting = errors.New("kernel is starting")
	// ErrStopped means Run has ended.
	ErrStopped = errors.New("kernel is shut down")
)

// Config says which kernel to run and where.
type Config struct {
	Python   Python   // from Find
	WorkDir  string   // the kernel's working directory
	StateDir string   // keeps the record by which the next executor ends a leftover
	Instance string   // the executor's instance id; tells its folders in the temp folder from another's
	Environ  []string // as os.Environ; secrets are taken out of it here
	// MaxMessageBytes bounds what is held of one message; 0 means jupyter's default.
	MaxMessageBytes int64
	Log             *slog.Logger
}

// Supervisor supervises one kernel process after another.
type Supervisor struct {
	cfg      Config
	restarts chan restart
	stopped  chan struct{} // closed when Run ends

	mu      sync.Mutex
	life    *Kernel       // the ready one, else nil
	changed chan struct{} // closed at each change of what stands below
	status  contract.KernelStatus
	lives   int
	reason  string
}

// New prepares a kernel; Run starts it.
func New(cfg Config) *Supervisor {
	return &Supervisor{
		cfg:      cfg,
		restarts: make(chan restart),
		stopped:  make(chan struct{}),
		changed:  make(chan struct{}),
		status:   contract.KernelStarting,
	}
}

// Run starts the kernel and starts it again whenever it dies, until ctx ends;
// then it ends the process and all it started. It returns an error only when
// the first kernel can't be brought up at all.
func (k *Supervisor) Run(ctx context.Context) error {
	defer close(k.stopped)
	if err := endLeftover(k.cfg.StateDir); err != nil {
		k.cfg.Log.Warn("ending a leftover kernel", "component", "kernel", "err", err)
	}
	deaths := 0
	var waiting chan error // answered when the next life is ready or given up
	for ctx.Err() == nil {
		life, err := k.start(ctx)
		if err == nil {
			k.set(life, contract.KernelIdle)
			answer(waiting, nil)
			began := time.Now()
			waiting = k.watch(ctx, life)
			if time.Since(began) >= settled || waiting != nil {
				deaths = 0
			}
		} else {
			k.setReason(err.Error())
		}
		if ctx.Err() != nil {
			break
		}
		if waiting != nil && err == nil {
			continue // asked for: not a death
		}
		if deaths++; deaths < maxDeaths {
			continue
		}
		answer(waiting, fmt.Errorf("%w: %s", ErrDead, k.Status().Reason))
		if err != nil && k.neverReady() {
			return fmt.Errorf("starting the kernel with %q: %w", k.cfg.Python.Path, err)
		}
		waiting = k.giveUp(ctx)
		deaths = 0
	}
	answer(waiting, ErrStopped)
	return nil
}

// watch holds one life until it ends. A restart of it that was asked for is returned
// to be answered once the next life is ready.
func (k *Supervisor) watch(ctx context.Context, life *Kernel) (waiting chan error) {
	defer k.cfg.Log.Info("kernel ended", "component", "kernel", "kernel_id", life.ID)
	waiting = k.awaitEnd(ctx, life)
	k.set(nil, contract.KernelStarting)
	k.setReason(life.Reason())
	life.close()
	return waiting
}

// awaitEnd returns when life has ended. A restart that means an earlier life has what
// it wants: whoever asks for one while another is under way joins it.
func (k *Supervisor) awaitEnd(ctx context.Context, life *Kernel) (waiting chan error) {
	for {
		select {
		case <-life.Done():
			k.cfg.Log.Warn("kernel died", "component", "kernel", "kernel_id", life.ID, "reason", life.Reason())
			return nil
		case r := <-k.restarts:
			if r.kernelID != life.ID {
				answer(r.done, nil)
				continue
			}
			life.restart()
			return r.done
		case <-ctx.Done():
			life.end("the executor shut down")
			return nil
		}
	}
}

// giveUp waits, dead, for someone to ask for a restart, whichever life is meant.
func (k *Supervisor) giveUp(ctx context.Context) (waiting chan error) {
	k.set(nil, contract.KernelDead)
	k.cfg.Log.Error("kernel given up", "component", "kernel", "deaths", maxDeaths)
	select {
	case r := <-k.restarts:
		waiting = r.done
		k.set(nil, contract.KernelStarting)
	case <-ctx.Done():
	}
	return waiting
}

// answer tells the one who asked for a restart, if somebody did.
func answer(waiting chan error, err error) {
	if waiting != nil {
		waiting <- err // buffered
	}
}

// Await blocks until a kernel is ready and returns its life. The error is
// ErrDead when it was given up, ctx's when ctx ends first.
func (k *Supervisor) Await(ctx context.Context) (*Kernel, error) {
	for {
		changed := k.Changed()
		life, err := k.Ready()
		if !errors.Is(err, ErrStarting) {
			return life, err
		}
		select {
		case <-changed:
		case <-k.stopped:
			return nil, ErrStopped
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Ready is the ready life, or ErrStarting or ErrDead.
func (k *Supervisor) Ready() (*Kernel, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.life != nil:
		return k.life, nil
	case k.status == contract.KernelDead:
		return nil, fmt.Errorf("%w: it died %d times in a row; last: %s", ErrDead, maxDeaths, k.reason)
	}
	return nil, ErrStarting
}

// Changed is closed at the next change of status or life.
func (k *Supervisor) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// restart is somebody's wish for another life than the one of this id.
type restart struct {
	kernelID string
	done     chan error // buffered; answered when the next life is ready or given up
}

// Restart ends the life of the id kernelID and returns when the next one is ready.
// When another life is current it does nothing but wait until that one is ready. A
// given-up kernel is started again whatever kernelID is.
func (k *Supervisor) Restart(ctx context.Context, kernelID string) error {
	done := make(chan error, 1)
	select {
	case k.restarts <- restart{kernelID, done}:
	case <-k.stopped:
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

// Status tells what the kernel is now. It says idle of a ready kernel: whether
// that one is busy, only the one who runs code on it knows.
func (k *Supervisor) Status() contract.Kernel {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := contract.Kernel{
		Status:    k.status,
		Python:    k.cfg.Python.Version,
		IPyKernel: k.cfg.Python.IPyKernel,
		Lives:     k.lives,
		Reason:    k.reason,
	}
	if k.life != nil {
		started := k.life.Started.UTC()
		s.KernelID, s.PID, s.StartedAt = k.life.ID, k.life.PID(), &started
	}
	return s
}

func (k *Supervisor) start(ctx context.Context) (*Kernel, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := removeRemains(ownerOf(k.cfg.Instance)); err != nil {
		k.cfg.Log.Warn("removing what a killed kernel left", "component", "kernel", "err", err)
	}
	life, err := startKernel(ctx, k.cfg)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.lives++
	k.mu.Unlock()
	k.cfg.Log.Info("kernel ready", "component", "kernel", "kernel_id", life.ID,
		"pid", life.PID(), "dur", time.Since(life.Started))
	return life, nil
}

func (k *Supervisor) set(life *Kernel, status contract.KernelStatus) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.life, k.status = life, status
	close(k.changed)
	k.changed = make(chan struct{})
}

// Record writes kernel.json again, for a state dir that was deleted: the next executor
// ends by it what outlives a kill of this one.
func (k *Supervisor) Record() error {
	life, err := k.Ready()
	if err != nil {
		return nil // the next life writes its own
	}
	return writeRecord(life.proc.record, life.proc.pid)
}

func (k *Supervisor) setReason(reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reason = reason
}

func (k *Supervisor) neverReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lives == 0
}
