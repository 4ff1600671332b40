package tools

import (
	"sync"

	"colabrelay/shared/contract"
)

// kernels remembers the kernel life last seen at each runtime, to say when
// another one answers. The zero value is ready.
type kernels struct {
	mu   sync.Mutex
	last map[string]string
}

// see notes a kernel life and reports whether another one was seen before.
func (k *kernels) see(runtime, id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id == "" {
		return false
	}
	if k.last == nil {
		k.last = map[string]string{}
	}
	before := k.last[runtime]
	k.last[runtime] = id
	return before != "" && before != id
}

// sawKernel warns when the kernel is not the one this relay last heard of.
func (c *call) sawKernel(id string) {
	if c.kernels.see(c.target.Name, id) {
		c.warn("The kernel is a new one: variables, functions and imports of the old one are gone. Run the set-up code again.")
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
