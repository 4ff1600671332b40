// Package runtimes gives the relay's commands and tools a client for each paired
// runtime, and records which VM and kernel each runtime had.
//
// It must not keep pairings: it asks for them at each call, so that a running relay uses a
// new one immediately. Start reading at Pool.
package runtimes

import (
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
)

// Config is what a Pool needs.
type Config struct {
	Getenv    func(string) string // of the settings
	Pairings  *pairing.Store
	Log       *slog.Logger    // nil for none
	OnAttempt func(err error) // see client.Config
	// Record returns the recorder of a runtime's executions. Nil records none.
	Record func(runtime string) client.Recorder
	// Transport returns what makes the connections to a runtime that has a Provider. Nil, or
	// a nil result, is the default transport.
	Transport func(pairing.Runtime) http.RoundTripper
}

// Runtime is an executor that calls can use.
type Runtime struct {
	Name   string // env, or the pairing's name
	URL    string
	Client *client.Client
}

// LastSeen stores the kernel last seen of each runtime, by the runtime's name, for the
// relay processes after this one. Both functions are nil when nothing is to be stored.
type LastSeen struct {
	Load func(runtime string) pairing.LastSeen
	Save func(runtime string, seen pairing.LastSeen)
}

// Pool has one client for each runtime, which keeps the executor's instance and clock
// from one call to the next. Its methods are safe for concurrent use.
type Pool struct {
	cfg Config

	mu      sync.Mutex
	clients map[string]connected // by name
}

type connected struct {
	pairing.Runtime
	client *client.Client
}

// changed reports whether r needs another client.
func (c connected) changed(r pairing.Runtime) bool {
	return c.URL != r.URL || c.Comeback() != r.Comeback() || c.Provider != r.Provider || c.VMID != r.VMID || !c.Secret.Equal(r.Secret)
}

// New returns a Pool without clients. A caller must Close it.
func New(cfg Config) *Pool {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Pool{cfg: cfg, clients: map[string]connected{}}
}

// Resolve returns the runtime that a call uses; see pairing.Resolve.
func (p *Pool) Resolve(name string) (Runtime, error) {
	found, err := pairing.Resolve(name, p.cfg.Getenv, p.cfg.Pairings)
	if err != nil {
		return Runtime{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	have, ok := p.clients[found.Name]
	if !ok || have.changed(found) {
		c, err := client.New(p.clientConfig(found))
		if err != nil {
			return Runtime{}, err
		}
		if ok {
			have.client.Close()
		}
		have = connected{found, c}
		p.clients[found.Name] = have
	}
	return Runtime{Name: found.Name, URL: found.URL, Client: have.client}, nil
}

func (p *Pool) clientConfig(r pairing.Runtime) client.Config {
	cfg := client.Config{BaseURL: r.URL, Secret: r.Secret, Comeback: r.Comeback(), Log: p.cfg.Log, OnAttempt: p.cfg.OnAttempt}
	if p.cfg.Transport != nil && r.Provider != "" {
		cfg.Transport = p.cfg.Transport(r)
	}
	if p.cfg.Record != nil {
		cfg.Recorder = p.cfg.Record(r.Name)
	}
	return cfg
}

// User says on whose behalf the relay uses a runtime. Each user is warned of a new kernel
// once, whatever the other one has seen.
type User string

const (
	Agents User = "agents"
	People User = "people"
)

// LastSeen loads and saves what a user sees of each runtime. It saves everything twice:
// for this user, and as the newest that any user saw, which `colab-relay doctor` compares with.
func (p *Pool) LastSeen(user User) LastSeen {
	if p.cfg.Pairings == nil {
		return LastSeen{}
	}
	return LastSeen{
		Load: func(name string) pairing.LastSeen { return p.lastSeen(name, user) },
		Save: func(name string, seen pairing.LastSeen) {
			newest, own := p.keys(name, user)
			if err := errors.Join(p.cfg.Pairings.SaveLastSeen(newest, seen), p.cfg.Pairings.SaveLastSeen(own, seen)); err != nil {
				p.cfg.Log.Warn("the next relay will not recognise this kernel", "kernel_id", seen.KernelID, "err", err)
			}
		},
	}
}

// lastSeen returns what this user last saw, or else what any user saw. Removing a pairing
// deletes only the newest entry, so without that one the user's own entry does not count.
func (p *Pool) lastSeen(name string, user User) pairing.LastSeen {
	newest, own := p.keys(name, user)
	any := p.cfg.Pairings.LastSeen(newest)
	if seen := p.cfg.Pairings.LastSeen(own); any != (pairing.LastSeen{}) && seen != (pairing.LastSeen{}) {
		return seen
	}
	return any
}

// keys returns the entries of a resolved runtime: the newest of any user, and this
// user's own. The latter contains the key id, because a name may be paired again with
// another secret.
func (p *Pool) keys(name string, user User) (newest, own string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.clients[name]
	return have.Key(), have.Key() + " " + have.Secret.KeyID() + " " + string(user)
}

// Close closes the idle connections of all clients.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clients {
		c.client.Close()
	}
}
