package op

import (
	"context"
	"sync"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// lastKernels remembers the kernel last seen of each runtime, so that a call can warn when
// a different one answers.
type lastKernels struct {
	stored runtimes.LastSeen // read for a runtime that this process has not seen yet

	mu   sync.Mutex
	last map[string]pairing.LastSeen
}

// seen returns what was last seen of a runtime.
func (k *lastKernels) seen(runtime string) pairing.LastSeen {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, known := k.last[runtime]
	if !known && k.stored.Load != nil {
		return k.stored.Load(runtime)
	}
	return last
}

// record saves a kernel that needs no warning.
func (k *lastKernels) record(runtime, id string) { k.update(runtime, "", id) }

// update saves a kernel and, unless empty, the instance it runs on. It returns what was
// seen before, and what is now.
func (k *lastKernels) update(runtime, instance, id string) (before, now pairing.LastSeen) {
	if id == "" { // no kernel yet
		return before, now
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	before, known := k.last[runtime]
	if !known && k.stored.Load != nil {
		before = k.stored.Load(runtime)
	}
	now = before.Updated(instance, id)
	if k.last == nil {
		k.last = map[string]pairing.LastSeen{}
	}
	k.last[runtime] = now
	if now != before && k.stored.Save != nil {
		k.stored.Save(runtime, now)
	}
	return before, now
}

// checkKernel warns when the kernel is not the one last seen by this relay process or an
// earlier one. It compares kernels, not instances, because a caller that asked for a new
// VM's kernel, as restore_kernel_state does, needs no warning.
func (c *call) checkKernel(id string) {
	if c.person != nil {
		return // remoterun tells people, before code runs
	}
	before, now := c.kernels.update(c.target.Name, c.target.Client.InstanceID(), id)
	if loss := before.Loss(now); loss != "" {
		c.warn("This is %s. %s", loss, c.afterLoss())
	}
}

// kernelWait bounds the extra request of checkKernelOf.
const kernelWait = 2 * time.Second

// checkKernelOf is checkKernel for a run that an earlier call may have started, even in an
// earlier kernel: if it has ended in a kernel other than the one last seen, the executor is
// asked which kernel there is now.
func (c *call) checkKernelOf(ctx context.Context, e contract.Execution) {
	seen := c.kernels.seen(c.target.Name).KernelID
	switch {
	case e.KernelID == "" || e.KernelID == seen:
	case !e.Status.Finished():
		c.checkKernel(e.KernelID)
	case seen != "":
		ctx, cancel := context.WithTimeout(ctx, kernelWait)
		defer cancel()
		if now, err := c.target.Client.Kernel(ctx); err == nil {
			c.checkKernel(now.KernelID)
		}
	}
}
