package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabcli"
)

// Names of the backends.
const (
	backendCLI = "cli"
	backendAPI = "api"
)

// vmBackends opens each backend once: they keep tokens and connections.
type vmBackends struct {
	getenv func(string) string
	dir    string
	log    *slog.Logger

	mu   sync.Mutex
	open map[string]vm.Backend
}

// Open returns the backend of that name.
func (b *vmBackends) Open(name string) (vm.Backend, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.open[name]; known != nil {
		return known, nil
	}
	var opened vm.Backend
	switch name {
	case backendCLI:
		opened = colabcli.New(colabcli.Config{Dir: filepath.Join(b.dir, "cli"), Log: b.log})
	case backendAPI:
		api, err := colabapi.New(colabapi.Config{Dir: b.dir, Getenv: b.getenv, Log: b.log})
		if err != nil {
			return nil, err
		}
		opened = api
	default:
		return nil, fmt.Errorf("%w: backend %q: use %s or %s", vm.ErrBadRequest, name, backendCLI, backendAPI)
	}
	b.open[name] = opened
	return opened, nil
}

// newVMs returns what starts VMs. file is the executor for them; empty for that of the release.
// A caller must Close it.
func newVMs(set config.Settings, cfg config.Config, file string, log *slog.Logger) *vm.Manager {
	backends := &vmBackends{getenv: set.Get, dir: cfg.VMDir, log: log, open: map[string]vm.Backend{}}
	ngrok, _ := config.LoadNgrok(set) // cfg.Problems has its error
	return vm.New(vm.Config{
		Dir: cfg.VMDir, Pairings: cfg.Pairings, Open: backends.Open,
		NgrokToken: string(ngrok.Token), NgrokDomain: ngrok.Domain, Log: log,
		Program: func(ctx context.Context, arch string) (vm.Program, error) {
			if file != "" {
				return vm.FileProgram(file, arch)
			}
			release, err := executorRelease(ctx, set.Get)
			if err != nil {
				return vm.Program{}, err
			}
			cache, err := os.UserCacheDir()
			if err != nil {
				return vm.Program{}, err
			}
			return vm.ReleaseProgram(release, arch, filepath.Join(cache, "colab-relay", "executors"))
		},
	})
}

// vmTransport returns what makes the connections to runtimes that are reached through the
// proxy of their VM. It opens nothing before the first one.
func vmTransport(set config.Settings, cfg config.Config) func(pairing.Runtime) http.RoundTripper {
	manager := sync.OnceValue(func() *vm.Manager { return newVMs(set, cfg, "", nil) })
	return func(r pairing.Runtime) http.RoundTripper {
		if r.Provider == "" {
			return nil // not a nil *transport
		}
		return manager().Transport(r)
	}
}
