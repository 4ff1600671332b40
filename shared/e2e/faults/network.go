package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
)

// network is the tunnel between the relays and the executor. Its address never changes.
type network struct {
	address, upstream string

	mu    sync.Mutex // held while a fault has the network
	proxy *toxiproxy.Proxy
}

func newNetwork(ctx context.Context, upstream string) (*network, error) {
	address, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	n := &network{address: address, upstream: upstream}
	return n, n.connect(ctx)
}

// connect starts a proxy without faults. A new one each time, because removing toxics from
// connections that are blocked never ends.
func (n *network) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n.proxy = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "tunnel", n.address, n.upstream)
	err := harness.Poll(ctx, func() (bool, error) { return n.proxy.Start() == nil, nil })
	if err != nil {
		return fmt.Errorf("starting the proxy on %s again: %w", n.address, err)
	}
	return nil
}

// cut closes all connections and refuses new ones for d.
func (n *network) cut(ctx context.Context, d time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxy.Stop()
	pause(ctx, d)
	return n.connect(ctx)
}

// toxic disturbs all connections for d, and then cuts them. description is toxiproxy's JSON.
func (n *network) toxic(ctx context.Context, description string, d time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	proxy, added := n.proxy, make(chan error, 1)
	go func() { // it waits for connections that are blocked, until they are cut
		_, err := proxy.Toxics.AddToxicJson(strings.NewReader(description))
		added <- err
	}()
	pause(ctx, d)
	proxy.Stop()
	if err := <-added; err != nil {
		return fmt.Errorf("adding the toxic %s: %w", description, err)
	}
	return n.connect(ctx)
}

// close ends the proxy.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxy.Stop()
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
