package doctor

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/progress"
	"colabrelay/shared/contract"
)

// runtimeCheck checks one runtime step by step, along the path of a call. It ends at the
// first step that fails.
type runtimeCheck struct {
	*report
	runtime  pairing.Runtime
	pairings *pairing.Store
	failed   verdict // of a step that fails
	client   *client.Client
	// transport is runtimes.Config.Transport; nil for none.
	transport func(pairing.Runtime) http.RoundTripper
}

func (c *runtimeCheck) run(ctx context.Context) {
	if c.runtime.URL == "" {
		c.line(warn, c.runtime.Name, "%v, key id %s", pairing.ErrNoAddress, c.runtime.Secret.KeyID())
		c.step("start its executor, then run `colab-relay pair --name %s URL` with the URL it prints", c.runtime.Name)
		return
	}
	c.line(ok, c.runtime.Name, "%s, key id %s", c.runtime.URL, c.runtime.Secret.KeyID())
	var err error
	cfg := client.Config{BaseURL: c.runtime.URL, Secret: c.runtime.Secret, Comeback: c.runtime.Comeback()}
	if c.transport != nil && c.runtime.Provider != "" {
		cfg.Transport = c.transport(c.runtime)
	}
	if c.client, err = client.New(cfg); err != nil {
		c.failure(err)
		return
	}
	defer c.client.Close()
	_ = c.network(ctx) && c.tunnel(ctx) && c.executor(ctx)
}

// failure prints the error of a step, and returns false.
func (c *runtimeCheck) failure(err error) bool {
	c.problem(c.failed, c.runtime.Name, err)
	return false
}

// network resolves the host's name and connects to it, unless a proxy does both.
func (c *runtimeCheck) network(ctx context.Context) bool {
	if proxy := client.Proxy(c.runtime.URL); proxy != "" {
		c.line(ok, c.runtime.Name, "network: through the proxy %s", proxy)
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, client.ReachLimit)
	defer cancel()
	u, err := url.Parse(c.runtime.URL)
	if err != nil {
		return c.failure(err)
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
	if err != nil {
		return c.failure(c.client.TransportError(ctx, err))
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return c.failure(c.client.TransportError(ctx, err))
	}
	conn.Close()
	if host := u.Hostname(); host == addresses[0] {
		c.line(ok, c.runtime.Name, "network: %s, port %s answers", host, port)
	} else {
		c.line(ok, c.runtime.Name, "network: %s has the address %s, and port %s answers", host, addresses[0], port)
	}
	return true
}

// tunnel requests the executor's health, unsigned. Strangers can use up the limit on
// unsigned requests, so that error does not end the checks.
func (c *runtimeCheck) tunnel(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, client.ReachLimit)
	defer cancel()
	_, err := c.client.Health(ctx)
	lost, isLost := errors.AsType[*client.Error](err)
	switch {
	case isLost && (lost.Kind == client.KindTunnelError || lost.Kind == client.KindRateLimited):
		c.problem(warn, c.runtime.Name, err)
	case err != nil:
		return c.failure(err)
	default:
		c.line(ok, c.runtime.Name, "executor: it answers")
	}
	return true
}

// executor sends signed requests, which check the secret, the clock, the VM and the
// kernel.
func (c *runtimeCheck) executor(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, client.ReachLimit)
	defer cancel()
	sent := time.Now()
	kernel, err := c.client.Kernel(ctx)
	took := time.Since(sent)
	if err != nil {
		return c.failure(err)
	}
	health, err := c.client.SignedHealth(ctx)
	if err != nil {
		return c.failure(err)
	}
	c.line(ok, c.runtime.Name, "executor: release %s, protocol %d, up %s, %.1f GB of memory available",
		health.Version, health.Protocol, progress.Duration(time.Duration(health.UptimeMinutes*float64(time.Minute))), health.MemoryAvailableGB)
	c.line(ok, c.runtime.Name, "secret: accepted; the executor answered in %d ms", max(took.Milliseconds(), 1))
	if offset := c.client.ClockOffset(); offset == 0 {
		c.line(ok, c.runtime.Name, "clock: within %g minutes of the executor's", contract.ClockSkew.Minutes())
	} else {
		c.line(warn, c.runtime.Name, "clock: %s from the executor's; the relay corrects this, which costs an extra request", offset.Abs().Round(time.Second))
		c.step("set the clock of this computer or of the VM")
	}
	c.vmAndKernel(kernel)
	return true
}

// vmAndKernel compares the VM and the kernel with those that a relay last used.
func (c *runtimeCheck) vmAndKernel(kernel contract.Kernel) {
	var before pairing.LastSeen
	if c.pairings != nil {
		before = c.pairings.LastSeen(c.runtime.Key())
	}
	instance := c.client.InstanceID()
	switch before.InstanceID {
	case "":
		c.line(ok, c.runtime.Name, "VM: no code was run on it from this computer yet (instance %s)", instance)
	case instance:
		c.line(ok, c.runtime.Name, "VM: the same as last time (instance %s)", instance)
	default:
		c.line(warn, c.runtime.Name, "VM: a different one than last time; it does not have the earlier VM's variables and files (instance %s)", instance)
	}
	switch {
	case kernel.Status == contract.KernelDead:
		c.line(c.failed, c.runtime.Name, "kernel: dead: %s", kernel.Reason)
		c.step("run `colab-relay restart`, or start the executor again (on Colab: run its cell again)")
	case before.KernelID != "" && before.KernelID != kernel.KernelID:
		c.line(warn, c.runtime.Name, "kernel: %s, Python %s; a different one than last time, without the earlier kernel's variables", kernel.Status, kernel.Python)
	default:
		c.line(ok, c.runtime.Name, "kernel: %s, Python %s", kernel.Status, kernel.Python)
	}
}
