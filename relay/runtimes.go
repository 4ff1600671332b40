package main

import (
	"errors"
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

// Who uses a runtime. Each is told of a new kernel once, whatever the other has seen.
const (
	byAgents = "agents"
	byPeople = "people"
)

// lives keeps what who sees of each runtime beside the pairings: under a name of its
// own, and as the newest that anybody saw, which the doctor compares with.
func (r *runtimes) lives(who string) tools.LastSeen {
	if r.pairings == nil {
		return tools.LastSeen{}
	}
	return tools.LastSeen{
		Load: func(name string) pairing.LastSeen { return r.lastLife(name, who) },
		Save: func(name string, seen pairing.LastSeen) {
			key, own := r.keys(name, who)
			if err := errors.Join(r.pairings.SaveLastSeen(key, seen), r.pairings.SaveLastSeen(own, seen)); err != nil {
				r.log.Warn("the next relay will not know this kernel", "kernel_id", seen.KernelID, "err", err)
			}
		},
	}
}

// lastLife is what who last saw; else what anybody saw. Both are forgotten with the
// pairing.
func (r *runtimes) lastLife(name, who string) pairing.LastSeen {
	key, own := r.keys(name, who)
	newest := r.pairings.LastSeen(key)
	if newest == (pairing.LastSeen{}) {
		return newest
	}
	if seen := r.pairings.LastSeen(own); seen != (pairing.LastSeen{}) {
		return seen
	}
	return newest
}

// keys are where the lives of a runtime that was resolved are kept: the newest, and
// the one that who saw. The secret tells pairings of one name apart.
func (r *runtimes) keys(name, who string) (newest, own string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.clients[name]
	return have.Key(), have.Key() + " " + have.Secret.KeyID() + " " + who
}

func (r *runtimes) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.clients {
		p.client.Close()
	}
}
