package vm

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"colabrelay/relay/pairing"
)

// Transport returns what makes the connections to a runtime that is reached through a
// backend's proxy; nil for all others. It opens nothing before the first request.
func (m *Manager) Transport(r pairing.Runtime) http.RoundTripper {
	name, ok := strings.CutPrefix(r.Provider, providerPrefix)
	if !ok {
		return nil
	}
	return &proxied{m: m, backend: name, id: r.VMID}
}

// proxied reaches the port of one VM's executor.
type proxied struct {
	m           *Manager
	backend, id string

	mu    sync.Mutex
	inner http.RoundTripper // nil until the proxy is known
}

// RoundTrip implements http.RoundTripper.
func (p *proxied) RoundTrip(r *http.Request) (*http.Response, error) {
	inner, err := p.proxy(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return inner.RoundTrip(r)
}

func (p *proxied) proxy(r *http.Request) (http.RoundTripper, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inner != nil {
		return p.inner, nil
	}
	b, err := p.m.cfg.Open(p.backend)
	if err != nil {
		return nil, err
	}
	proxy, ok := b.(Proxied)
	if !ok {
		return nil, fmt.Errorf("the backend %s offers no proxy", p.backend)
	}
	all, err := p.m.store.read()
	if err != nil {
		return nil, err
	}
	rec := find(all, p.id)
	if rec == nil {
		return nil, errors.New("the VM is not on record")
	}
	_, p.inner, err = proxy.Proxy(r.Context(), p.id, rec.Port)
	return p.inner, err
}

// CloseIdleConnections closes those of the proxy.
func (p *proxied) CloseIdleConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.inner.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
