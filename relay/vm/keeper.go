package vm

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// When VMs are kept alive.
const (
	// KeepInterval is the time between two keep-alives of a VM. Colab has been seen to end idle
	// VMs after 7 minutes.
	KeepInterval = 5 * time.Minute
	// KeepLimit is the age at which a VM is no longer kept alive, whatever runs on it.
	KeepLimit = 24 * time.Hour
	// keepApart is the least time between two keep-alives of one VM by all relays on this
	// computer. A relay that takes over from another one is still in time.
	keepApart = 90 * time.Second
	// keepTime bounds one question to an executor and one keep-alive.
	keepTime = 2 * time.Minute
)

// KeepText says to people what the keeper does.
const KeepText = "The relay keeps a VM alive only while code runs on it, for at most 24 hours after its start: every 5 minutes it sends Colab a request for the VM. This needs a relay that runs on this computer, such as one that an MCP host started, or `colab-relay run`. Colab may end a VM on which no code runs."

// Work is what an executor does.
type Work int

// What it does.
const (
	Idle    Work = iota // all executions are finished
	Waiting             // one is unfinished, but none runs: it waits for input
	Working             // one runs
)

// Keeper keeps VMs alive while executions run on them. Every KeepInterval it asks the executor
// of each VM on which an execution was last seen unfinished, and sends one keep-alive if it
// answers that one is running. It sends none on a guess: an executor that is idle is asked once,
// and then no more.
type Keeper struct {
	vms   func() ([]Record, error)                  // that this computer started and paired
	touch func(ctx context.Context, r Record) error // unless another relay has just done it
	log   *slog.Logger

	stop  context.CancelFunc // nil before Start
	ended sync.WaitGroup

	mu   sync.Mutex
	busy map[string]bool // the runtimes on which an execution was last seen unfinished
}

// Keeper returns the Keeper of the VMs that this computer started and paired. It starts nothing.
func (m *Manager) Keeper() *Keeper {
	return &Keeper{vms: m.kept, touch: m.touch, log: m.cfg.Log, busy: map[string]bool{}}
}

// Start begins to keep VMs alive. work asks a runtime's executor what it does, in one request.
// With resume, all VMs are asked at once for executions of an earlier relay. A caller must Close
// the Keeper.
func (k *Keeper) Start(ctx context.Context, work func(ctx context.Context, runtime string) (Work, error), resume bool) {
	ctx, k.stop = context.WithCancel(ctx)
	k.ended.Go(func() {
		if resume {
			k.round(ctx, work, true)
		}
		tick := time.NewTicker(KeepInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				k.round(ctx, work, false)
			}
		}
	})
}

// Close ends what Start began.
func (k *Keeper) Close() {
	if k.stop != nil {
		k.stop()
	}
	k.ended.Wait()
}

// set notes whether a runtime has an unfinished execution.
func (k *Keeper) set(runtime string, busy bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.busy, runtime); busy {
		k.busy[runtime] = true
	}
}

func (k *Keeper) isBusy(runtime string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.busy[runtime]
}

// round keeps the VMs alive that work, of all or of those that were busy.
func (k *Keeper) round(ctx context.Context, work func(context.Context, string) (Work, error), all bool) {
	vms, err := k.vms()
	if err != nil {
		k.log.Warn("no VM is kept alive, because the record of VMs cannot be read", "err", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	var wait sync.WaitGroup
	for _, r := range vms {
		// An age below zero comes from a clock that was set back: the true age is unknown.
		if age := time.Since(r.Asked); age >= 0 && age < KeepLimit && (all || k.isBusy(r.Name)) {
			wait.Go(func() {
				does, err := work(ctx, r.Name)
				k.keep(ctx, r, does, err)
			})
		}
	}
	wait.Wait()
}

// keep sends one keep-alive if an execution is running on the VM.
func (k *Keeper) keep(ctx context.Context, r Record, work Work, err error) {
	log := k.log.With("vm", r.ID, "runtime", r.Name)
	if err != nil {
		log.Warn("whether code runs on a VM is unknown, so it is not kept alive now", "err", err)
		return
	}
	if k.set(r.Name, work != Idle); work != Working {
		return
	}
	if err := k.touch(ctx, r); err != nil {
		k.set(r.Name, !errors.Is(err, ErrGone))
		log.Warn("a VM was not kept alive", "err", err)
		return
	}
	log.Info("a VM is kept alive, because code runs on it")
}

// kept returns the VMs on record whose name is still that of their executor.
func (m *Manager) kept() ([]Record, error) {
	all, err := m.store.read()
	return slices.DeleteFunc(all, func(r Record) bool { return r.Step != Paired || !m.isPaired(r) }), err
}

// touch sends one keep-alive, unless any relay on this computer has just sent one.
func (m *Manager) touch(ctx context.Context, v Record) error {
	b, err := m.cfg.Open(v.Backend)
	if err != nil {
		return err
	}
	due := false
	err = m.store.update(v.ID, func(r *Record) {
		now := time.Now().UTC()
		if due = now.Sub(r.Touched).Abs() >= keepApart; due {
			r.Touched = now
		}
	})
	if err != nil || !due {
		return err
	}
	return b.Touch(ctx, v.ID)
}

// Record is runtimes.Config.Record: it looks for unfinished executions in what next is told.
func (k *Keeper) Record(next func(runtime string) client.Recorder) func(runtime string) client.Recorder {
	return func(runtime string) client.Recorder {
		return reporter{cmp.Or[client.Recorder](next(runtime), nobody{}), k, runtime}
	}
}

// nobody is the client.Recorder of a relay without a history.
type nobody struct{}

func (nobody) Submitted(string, contract.Submit, contract.Execution) {}
func (nobody) Answered(string, contract.Execution)                   {}
func (nobody) Fetched(string, string, contract.Blob, []byte)         {}

// reporter is a client.Recorder of one runtime's executions.
type reporter struct {
	client.Recorder
	keeper  *Keeper
	runtime string
}

func (r reporter) Submitted(instanceID string, s contract.Submit, e contract.Execution) {
	r.see(e)
	r.Recorder.Submitted(instanceID, s, e)
}

func (r reporter) Answered(instanceID string, e contract.Execution) {
	r.see(e)
	r.Recorder.Answered(instanceID, e)
}

func (r reporter) see(e contract.Execution) {
	if !e.Status.Finished() {
		r.keeper.set(r.runtime, true)
	}
}
