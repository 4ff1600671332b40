package tools

import (
	"cmp"
	"sync"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/shared/contract"
)

// Lives keeps what was last seen of each runtime for the relays after this one, by
// the runtime's name. Both are nil where nothing is to be kept.
type Lives struct {
	Last func(runtime string) pairing.LastSeen
	Saw  func(runtime string, seen pairing.LastSeen)
}

// kernels remembers the life last seen of each runtime, to say when another one
// answers.
type kernels struct {
	lives Lives // asked for a runtime that this relay has not seen yet

	mu   sync.Mutex
	last map[string]pairing.LastSeen
}

// see notes a kernel that nobody need be warned of.
func (k *kernels) see(runtime, id string) { k.note(runtime, "", id) }

// note takes over a kernel and, unless empty, the instance it runs on, and gives
// what was seen before.
func (k *kernels) note(runtime, instance, id string) (before pairing.LastSeen) {
	if id == "" { // no kernel yet
		return pairing.LastSeen{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	before, known := k.last[runtime]
	if !known && k.lives.Last != nil {
		before = k.lives.Last(runtime)
	}
	now := before
	now.InstanceID = cmp.Or(instance, before.InstanceID)
	if id != before.KernelID {
		now.KernelID, now.Since = id, time.Now()
	}
	if k.last == nil {
		k.last = map[string]pairing.LastSeen{}
	}
	k.last[runtime] = now
	if now != before && k.lives.Saw != nil {
		k.lives.Saw(runtime, now)
	}
	return before
}

// sawKernel warns when the kernel is not the one last heard of, by this relay or one
// before it. The kernel decides, not the instance: who asked for a new VM's kernel,
// as restore_kernel_state does, has heard of it.
func (c *call) sawKernel(id string) {
	instance := c.target.Client.InstanceID()
	before := c.kernels.note(c.target.Name, instance, id)
	switch {
	case id == "" || before.KernelID == "" || before.KernelID == id:
	case before.InstanceID != "" && before.InstanceID != instance:
		c.warn("The kernel is a new one, on a new VM: variables, functions and imports of the old one are gone, and its files too, except those on Drive. %s", c.afterLoss())
	default:
		c.warn("The kernel is a new one: variables, functions and imports of the old one are gone. %s", c.afterLoss())
	}
}

// maxPendingSaves bounds the runs whose checkpoint is still to be completed.
const maxPendingSaves = 256

// pendingSaves remembers under which checkpoint name the end of a run is to be
// kept, when run_code_long returned before it. The zero value is ready.
type pendingSaves struct {
	mu    sync.Mutex
	names map[string]string // runtime and execution_id to checkpoint name
	order []string
}

func (p *pendingSaves) put(run *Run, runtime, name string) {
	if contract.Status(run.Status).Finished() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = map[string]string{}
	}
	if len(p.order) >= maxPendingSaves {
		delete(p.names, p.order[0])
		p.order = append(p.order[:0], p.order[1:]...)
	}
	key := runtime + "/" + run.ExecutionID
	p.names[key] = name
	p.order = append(p.order, key)
}

// get gives the name for a run, empty for none.
func (p *pendingSaves) get(runtime, id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names[runtime+"/"+id]
}
