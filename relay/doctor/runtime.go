package doctor

import (
	"context"
	"net/http"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/tools"
	"colabrelay/shared/contract"
)

// runtimeCheck checks one runtime.
type runtimeCheck struct {
	*report
	runtime  pairing.Runtime
	pairings *pairing.Store
	failed   verdict // of a check that fails
	// transport is runtimes.Config.Transport; nil for none.
	transport func(pairing.Runtime) http.RoundTripper
}

func (c *runtimeCheck) run(ctx context.Context) {
	name := c.runtime.Name
	if c.runtime.URL == "" {
		c.line(warn, name, "%v, key id %s", pairing.ErrNoAddress, c.runtime.Secret.KeyID())
		c.step("start its executor, then run `colab-relay pair --name %s URL` with the URL it prints", name)
		return
	}
	c.line(ok, name, "%s, key id %s", c.runtime.URL, c.runtime.Secret.KeyID())
	if proxy := client.Proxy(c.runtime.URL); proxy != "" {
		c.line(ok, name, "network: through the proxy %s", proxy)
	}
	got, err := tools.Reach(client.WithPatience(ctx, 1), c.runtime, c.transport) // one attempt shows what is wrong
	if err != nil {
		c.problem(c.failed, name, err)
		return
	}
	c.line(ok, name, "connected: %s", got.Summary())
	if got.Clock != 0 {
		c.line(warn, name, "clock: %s from the executor's; the relay corrects this, which costs an extra request", got.Clock.Abs().Round(time.Second))
		c.step("set the clock of this computer or of the VM")
	}
	c.vmAndKernel(got)
}

// vmAndKernel compares the VM and the kernel with those that a relay last used.
func (c *runtimeCheck) vmAndKernel(got *tools.Connection) {
	var before pairing.LastSeen
	if c.pairings != nil {
		before = c.pairings.LastSeen(c.runtime.Key())
	}
	name, kernel := c.runtime.Name, got.Kernel
	switch before.InstanceID {
	case "":
		c.line(ok, name, "VM: no code was run on it from this computer yet (instance %s)", got.InstanceID)
	case got.InstanceID:
		c.line(ok, name, "VM: the same as last time (instance %s)", got.InstanceID)
	default:
		c.line(warn, name, "VM: a different one than last time; it does not have the earlier VM's variables and files (instance %s)", got.InstanceID)
	}
	switch {
	case kernel.Status == contract.KernelDead:
		c.line(c.failed, name, "kernel: dead: %s", kernel.Reason)
		c.step("run `colab-relay restart`, or start the executor again (on Colab: run its cell again)")
	case before.KernelID != "" && before.KernelID != kernel.KernelID:
		c.line(warn, name, "kernel: a different one than last time, without the earlier kernel's variables")
	}
}
