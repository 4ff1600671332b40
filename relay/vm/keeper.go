package vm

import (
	"context"
	"errors"
	"log/slog"
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
	// maxReported bounds the executions that are remembered of a VM: their ids come from
	// outside. The executor knows the others.
	maxReported = 100
)

// KeepText says to people what the keeper does.
const KeepText = "The relay keeps a VM alive only while code runs on it, for at most 24 hours after its start: every 5 minutes it sends Colab a request for the VM. This needs a relay that runs on this computer, such as one that an MCP host started, or `colab-relay run`. Colab may end a VM on which no code runs."

// Kept is a VM that this computer started and paired.
type Kept struct {
	ID      string
	Backend string
	Runtime string    // the name of its pairing
	Since   time.Time // when it was started
}

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
// answers that one is running. It sends none on a guess, and asks nothing of a VM where all
// executions are finished.
type Keeper struct {
	vms    func() ([]Kept, error)                                  // that this computer started and paired
	work   func(ctx context.Context, runtime string) (Work, error) // asks an executor, in one request
	touch  func(ctx context.Context, v Kept) error                 // unless another relay has just done it
	resume bool                                                    // Run asks all VMs once for executions of an earlier relay
	log    *slog.Logger

	mu       sync.Mutex
	reported map[string]map[string]bool // unfinished executions, by runtime and id
}

// Keeper returns the Keeper of the VMs that this computer started and paired. It starts nothing.
// work asks a runtime's executor what it does, in one request. With resume, Run begins by asking
// all VMs for executions of an earlier relay.
func (m *Manager) Keeper(work func(ctx context.Context, runtime string) (Work, error), resume bool) *Keeper {
	return &Keeper{vms: m.kept, work: work, touch: m.touch, resume: resume, log: m.cfg.Log, reported: map[string]map[string]bool{}}
}

// Report tells the Keeper what was seen of an execution on any runtime. It returns at once.
func (k *Keeper) Report(runtime, executionID string, finished bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := k.reported[runtime]
	switch {
	case finished:
		delete(ids, executionID)
		if len(ids) == 0 {
			delete(k.reported, runtime)
		}
	case ids == nil:
		k.reported[runtime] = map[string]bool{executionID: true}
	case len(ids) < maxReported:
		ids[executionID] = true
	}
}

// Run keeps VMs alive until ctx ends. All its goroutines have ended when it returns.
func (k *Keeper) Run(ctx context.Context) {
	if k.resume {
		k.round(ctx, func(Kept) bool { return true })
	}
	tick := time.NewTicker(KeepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.round(ctx, func(v Kept) bool { return k.isBusy(v.Runtime) })
		}
	}
}

func (k *Keeper) isBusy(runtime string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.reported[runtime]) > 0
}

// round keeps those VMs alive for which wanted returns true.
func (k *Keeper) round(ctx context.Context, wanted func(Kept) bool) {
	all, err := k.vms()
	if err != nil {
		k.log.Warn("no VM is kept alive, because the record of VMs cannot be read", "err", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	var wait sync.WaitGroup
	for _, v := range all {
		// An age below zero comes from a clock that was set back: the true age is unknown.
		if age := time.Since(v.Since); age >= 0 && age < KeepLimit && wanted(v) {
			wait.Go(func() { k.keep(ctx, v) })
		}
	}
	wait.Wait()
}

// resumed stands for executions of an earlier relay, whose ids are not known.
const resumed = ""

// keep sends one keep-alive if an execution is running on the VM.
func (k *Keeper) keep(ctx context.Context, v Kept) {
	work, err := k.work(ctx, v.Runtime)
	switch {
	case err != nil:
		k.warn("whether code runs on a VM is unknown, so it is not kept alive now", v, err)
		return
	case work == Idle:
		k.forget(v.Runtime)
		return
	case !k.isBusy(v.Runtime):
		k.Report(v.Runtime, resumed, false)
	}
	if work == Waiting {
		return
	}
	if err := k.touch(ctx, v); err != nil {
		if errors.Is(err, ErrGone) {
			k.forget(v.Runtime)
		}
		k.warn("a VM was not kept alive", v, err)
		return
	}
	k.log.Info("a VM is kept alive, because code runs on it", "vm", v.ID, "runtime", v.Runtime)
}

func (k *Keeper) warn(text string, v Kept, err error) {
	k.log.Warn(text, "vm", v.ID, "runtime", v.Runtime, "err", err)
}

func (k *Keeper) forget(runtime string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.reported, runtime)
}

// kept returns the VMs on record whose name is still that of their executor.
func (m *Manager) kept() ([]Kept, error) {
	all, err := m.store.read()
	if err != nil {
		return nil, err
	}
	var kept []Kept
	for _, r := range all {
		if r.Step != Paired {
			continue
		}
		if p, err := m.cfg.Pairings.Get(r.Name); err == nil && r.pairedAs(p) {
			kept = append(kept, Kept{ID: r.ID, Backend: r.Backend, Runtime: r.Name, Since: r.Asked})
		}
	}
	return kept, nil
}

// touch sends one keep-alive, unless any relay on this computer has just sent one.
func (m *Manager) touch(ctx context.Context, v Kept) error {
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

// Record is runtimes.Config.Record: it reports executions to the Keeper, and to next if that is not
// nil.
func (k *Keeper) Record(next func(runtime string) client.Recorder) func(runtime string) client.Recorder {
	return func(runtime string) client.Recorder {
		r := reporter{keeper: k, runtime: runtime}
		if next != nil {
			r.next = next(runtime)
		}
		return r
	}
}

// reporter is a client.Recorder of one runtime's executions.
type reporter struct {
	keeper  *Keeper
	runtime string
	next    client.Recorder // nil for none
}

func (r reporter) Submitted(instanceID string, s contract.Submit, e contract.Execution) {
	r.keeper.Report(r.runtime, e.ExecutionID, e.Status.Finished())
	if r.next != nil {
		r.next.Submitted(instanceID, s, e)
	}
}

func (r reporter) Answered(instanceID string, e contract.Execution) {
	r.keeper.Report(r.runtime, e.ExecutionID, e.Status.Finished())
	if r.next != nil {
		r.next.Answered(instanceID, e)
	}
}

func (r reporter) Fetched(instanceID, executionID string, blob contract.Blob, content []byte) {
	if r.next != nil {
		r.next.Fetched(instanceID, executionID, blob, content)
	}
}
