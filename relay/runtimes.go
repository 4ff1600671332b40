package main

import (
	"log/slog"
	"sync"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/tools"
)

// runtimes gives each runtime one client, which remembers the executor's
// instance and clock. The pairings are read anew at each call, so that a new one
// counts at once.
type runtimes struct {
	get      func(string) string
	pairings *pairing.Store
	log      *slog.Logger

	mu      sync.Mutex
	clients map[string]paired // by name
}

type paired struct {
	pairing.Runtime
	client *client.Client
}

func newRuntimes(get func(string) string, store *pairing.Store, log *slog.Logger) *runtimes {
	return &runtimes{get: get, pairings: store, log: log, clients: map[string]paired{}}
}

// resolve gives the runtime a call means.
func (r *runtimes) resolve(name string) (tools.Runtime, error) {
	found, err := pairing.Resolve(name, r.get, r.pairings)
	if err != nil {
		return tools.Runtime{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	have, ok := r.clients[found.Name]
	if !ok || have.URL != found.URL || !have.Secret.Equal(found.Secret) {
		c, err := client.New(client.Config{BaseURL: found.URL, Secret: found.Secret, Log: r.log})
		if err != nil {
			return tools.Runtime{}, err
		}
		if ok {
			have.client.Close()
		}
		have = paired{found, c}
		r.clients[found.Name] = have
	}
	return tools.Runtime{Name: found.Name, URL: found.URL, Client: have.client}, nil
}

// lives keeps what is seen of each runtime beside the pairings.
func (r *runtimes) lives() tools.Lives {
	if r.pairings == nil {
		return tools.Lives{}
	}
	return tools.Lives{
		Last: func(name string) pairing.Life { return r.pairings.Life(r.key(name)) },
		Saw: func(name string, seen pairing.Life) {
			if err := r.pairings.Saw(r.key(name), seen); err != nil {
				r.log.Warn("the next relay will not know this kernel", "kernel_id", seen.KernelID, "err", err)
			}
		},
	}
}

// key is where the life of a runtime that was resolved is kept.
func (r *runtimes) key(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clients[name].Key()
}

func (r *runtimes) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.clients {
		p.client.Close()
	}
}
