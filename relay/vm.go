package main

import (
	"context"

	"colabrelay/relay/config"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
)

// openVM is a VM that answers, and what a command needs beside it.
type openVM struct {
	tools.Runtime
	cfg     config.Config
	pool    *runtimes.Pool
	history runHistory
}

// named chooses the runtime of that name, the default one if name is empty.
func named(name string) func(runHistory) string {
	return func(runHistory) string { return name }
}

// withVM calls use with the runtime that choose names, after its executor has answered. If it
// does not answer at the beginning, withVM returns that error at once. During an outage it
// tells the person.
func withVM(ctx context.Context, set *config.Settings, choose func(runHistory) string, std terminal.Streams, use func(openVM) error) error {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return err
	}
	outage := &terminal.Outage{Out: std.Err}
	kept := openHistory(cfg, nil)
	defer kept.close(std.Err)
	vms := newVMs(*set, cfg, "", nil)
	defer vms.Close()
	alive := newKeepAlive(vms, false)
	pool := runtimes.New(runtimes.Config{Getenv: set.Get, Pairings: cfg.Pairings, OnAttempt: outage.Attempt, Record: alive.record(kept.record()), Transport: vms.Transport})
	defer pool.Close()
	alive.start(ctx, pool)
	defer alive.close()
	target, err := pool.Resolve(choose(kept))
	if err != nil {
		return err
	}
	if err := reach(ctx, target.Client); err != nil {
		return err
	}
	return use(openVM{target, cfg, pool, kept})
}
