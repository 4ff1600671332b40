package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/progress"
	"colabrelay/shared/contract"
)

// examination goes the way of a call to one runtime, step by step, and ends at the
// first that leads no further.
type examination struct {
	*report
	runtime pairing.Runtime
	lives   *pairing.Store
	bad     verdict // of a step that leads no further
	client  *client.Client
}

func (e *examination) run(ctx context.Context) {
	if e.runtime.URL == "" {
		e.say(warn, e.runtime.Name, "%v, key id %s", pairing.ErrNoAddress, e.runtime.Secret.KeyID())
		e.step("start its executor, then run `relay pair --name %s URL` with the URL it prints", e.runtime.Name)
		return
	}
	e.say(ok, e.runtime.Name, "%s, key id %s", e.runtime.URL, e.runtime.Secret.KeyID())
	c, err := client.New(client.Config{BaseURL: e.runtime.URL, Secret: e.runtime.Secret})
	if err != nil {
		e.problem(e.bad, e.runtime.Name, err)
		return
	}
	defer c.Close()
	e.client = c
	_ = e.network(ctx) && e.tunnel(ctx) && e.executor(ctx)
}

// network looks the name up and connects. Where a proxy stands between, it does both.
func (e *examination) network(ctx context.Context) bool {
	if proxy := client.Proxy(e.runtime.URL); proxy != "" {
		e.say(ok, e.runtime.Name, "network: by way of the proxy %s", proxy)
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	u, err := url.Parse(e.runtime.URL)
	if err != nil {
		e.problem(e.bad, e.runtime.Name, err)
		return false
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
	if err != nil {
		e.problem(e.bad, e.runtime.Name, e.client.TransportError(ctx, err))
		return false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		e.problem(e.bad, e.runtime.Name, e.client.TransportError(ctx, err))
		return false
	}
	conn.Close()
	e.say(ok, e.runtime.Name, "network: %s has the address %s, and port %s answers", u.Hostname(), addresses[0], port)
	return true
}

// tunnel asks for the executor's health, unsigned. Strangers can use up its rate, so
// that answer alone is no end.
func (e *examination) tunnel(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	_, err := e.client.Health(ctx)
	var lost *client.Error
	switch {
	case errors.As(err, &lost) && (lost.Kind == client.KindTunnelError || lost.Kind == client.KindRateLimited):
		e.problem(warn, e.runtime.Name, err)
	case err != nil:
		e.problem(e.bad, e.runtime.Name, err)
		return false
	default:
		e.say(ok, e.runtime.Name, "executor: it answers")
	}
	return true
}

// executor asks something signed: that proves the secret, and tells clock, VM and
// kernel.
func (e *examination) executor(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	asked := time.Now()
	kernel, err := e.client.Kernel(ctx)
	took := time.Since(asked)
	if err != nil {
		e.problem(e.bad, e.runtime.Name, err)
		return false
	}
	health, err := e.client.SignedHealth(ctx)
	if err != nil {
		e.problem(e.bad, e.runtime.Name, err)
		return false
	}
	e.say(ok, e.runtime.Name, "executor: release %s, protocol %d, up %s, %.1f GB of memory available",
		health.Version, health.Protocol, progress.Duration(time.Duration(health.UptimeMinutes*float64(time.Minute))), health.MemoryAvailableGB)
	e.say(ok, e.runtime.Name, "secret: the executor's own; an answer takes %d ms", took.Milliseconds())
	if offset := e.client.ClockOffset(); offset == 0 {
		e.say(ok, e.runtime.Name, "clock: within %s of the executor's", contract.ClockSkew)
	} else {
		e.say(warn, e.runtime.Name, "clock: %s from the executor's; the relay corrects that, at the cost of a second request", offset.Abs().Round(time.Second))
		e.step("set this computer's clock, or the VM's")
	}
	e.life(kernel)
	return true
}

// life compares VM and kernel with those that a relay last used.
func (e *examination) life(kernel contract.Kernel) {
	var before pairing.LastSeen
	if e.lives != nil {
		before = e.lives.LastSeen(e.runtime.Key())
	}
	instance := e.client.InstanceID()
	switch {
	case before.InstanceID == "":
		e.say(ok, e.runtime.Name, "instance: %s, not used by this computer's relay before", instance)
	case before.InstanceID != instance:
		e.say(warn, e.runtime.Name, "instance: %s, another VM than the relay used last: that one's variables and files are not here", instance)
	default:
		e.say(ok, e.runtime.Name, "instance: %s, the one the relay last used", instance)
	}
	switch {
	case kernel.Status == contract.KernelDead:
		e.say(e.bad, e.runtime.Name, "kernel: dead: %s", kernel.Reason)
		e.step("call the tool restart_kernel, or run the executor's cell again")
	case before.KernelID != "" && before.KernelID != kernel.KernelID:
		e.say(warn, e.runtime.Name, "kernel: %s, Python %s; another one than the relay used last: that one's variables are not here", kernel.Status, kernel.Python)
	default:
		e.say(ok, e.runtime.Name, "kernel: %s, Python %s", kernel.Status, kernel.Python)
	}
}
