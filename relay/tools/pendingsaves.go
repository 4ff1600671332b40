package tools

import (
	"sync"

	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// maxPendingSaves bounds the runs whose checkpoint is not complete yet.
const maxPendingSaves = 256

// pendingSaves remembers the checkpoint name of each run that had not ended when
// run_code_long returned: the get_execution that reads its end saves the answer. The zero
// value is ready to use.
type pendingSaves struct {
	mu    sync.Mutex
	names map[string]string // runtime, instance and execution_id to checkpoint name
	order []string          // keys of names, oldest first
}

func (p *pendingSaves) put(run *Run, on runtimes.Runtime, name string) {
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
	key := saveKey(on, run.ExecutionID)
	p.names[key] = name
	p.order = append(p.order, key)
}

// get returns the checkpoint name of a run; empty if it has none.
func (p *pendingSaves) get(on runtimes.Runtime, id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names[saveKey(on, id)]
}

// saved forgets a run whose end is saved: no later answer changes the checkpoint.
func (p *pendingSaves) saved(on runtimes.Runtime, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.names, saveKey(on, id))
}

func saveKey(on runtimes.Runtime, id string) string {
	return on.Name + "/" + on.Client.InstanceID() + "/" + id
}
