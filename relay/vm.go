package main

import (
	"context"

	"colabrelay/relay/config"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
)

// withVM calls use with the runtime of that name, the default one if name is empty, after
// its executor has answered. During an outage it tells the person.
func withVM(ctx context.Context, set *config.Settings, name string, std terminal.Streams, use func(tools.Runtime) error) error {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return err
	}
	outage := &terminal.Outage{Out: std.Err}
	kept := openHistory(cfg, nil)
	defer kept.close()
	pool := runtimes.New(runtimes.Config{Getenv: set.Get, Pairings: cfg.Pairings, OnAttempt: outage.Attempt, Record: kept.record()})
	defer pool.Close()
	vm, err := pool.Resolve(name)
	if err != nil {
		return err
	}
	if err := reach(ctx, vm.Client); err != nil {
		return err
	}
	return use(vm)
}
