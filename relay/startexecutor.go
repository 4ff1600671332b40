package main

import (
	"context"
	"log/slog"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/bridge"
	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
)

// newBridge returns what starts an executor on the VM of Colab's page. A caller must Close it
// before the page.
func newBridge(set config.Settings, store *pairing.Store, log *slog.Logger) *bridge.Bridge {
	return bridge.New(bridge.Config{
		Release: func(ctx context.Context) (bootstrap.Release, error) { return executorRelease(ctx, set.Get) },
		Tunnel: func() (bridge.Tunnel, error) {
			n, err := config.LoadNgrok(set)
			return bridge.Tunnel{Token: string(n.Token), Domain: n.Domain}, err
		},
		Store: store, Getenv: set.Get, Reach: reachExecutor, Log: log,
	})
}

// reachExecutor returns the instance id of the executor of r once a signed request has reached
// it. It tries until ctx ends.
func reachExecutor(ctx context.Context, r pairing.Runtime) (string, error) {
	vm, err := client.New(client.Config{BaseURL: r.URL, Secret: r.Secret})
	if err != nil {
		return "", err
	}
	defer vm.Close()
	if _, err := vm.SignedHealth(ctx); err != nil {
		return "", err
	}
	return vm.InstanceID(), nil
}
