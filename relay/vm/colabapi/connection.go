package colabapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// leastLifetime and mostLifetime bound what is believed about the life of a proxy's
	// token. Others saw about an hour (unverified).
	leastLifetime = time.Minute
	mostLifetime  = 2 * time.Hour
	// renewEvery is the shortest time between two renewals after the proxy has refused
	// freeRenewals tokens in a row, as for a VM whose executor has ended: the API has a quota.
	renewEvery   = 15 * time.Second
	freeRenewals = 3
)

// jupyterPort is the port of Colab's Jupyter server, with which a VM's address begins.
const jupyterPort = 8080

// address is where a VM's proxy is, with the token that it wants. It is only in memory.
type address struct {
	base  *url.URL // of the Jupyter server
	token string
}

// ofPort returns the base URL of another port of the VM: https://8000-NAME for
// https://8080-NAME. That this works is unverified; an executor's signed answer proves it.
func (a address) ofPort(port int) (*url.URL, error) {
	rest, ok := strings.CutPrefix(a.base.Host, strconv.Itoa(jupyterPort)+"-")
	if !ok || port < 1 || port > 65535 {
		return nil, fmt.Errorf("the proxy's address %q tells no address of port %d", a.base.Host, port)
	}
	return &url.URL{Scheme: a.base.Scheme, Host: strconv.Itoa(port) + "-" + rest}, nil
}

// connection keeps the address of one VM.
type connection struct {
	turn chan struct{} // contains one element while a call reads or renews what follows

	// Only the owner of turn changes these.
	current  address
	renew    time.Time // when to get a new token before it is refused
	asked    time.Time // when the last one was asked for
	unproven int       // tokens since the last one that the proxy accepted
}

// connectionTo returns the connection of a VM, which may hold no address yet.
func (b *Backend) connectionTo(id string) *connection {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.connections[id]
	if c == nil {
		c = &connection{turn: make(chan struct{}, 1)}
		b.connections[id] = c
	}
	return c
}

// forget drops the token of a VM.
func (b *Backend) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.connections, id)
}

// address returns where a VM's proxy is. The token differs from stale, which the proxy
// refused, unless several were refused and the last one is only seconds old. Many callers
// with an expired token cause one call of the API.
func (b *Backend) address(ctx context.Context, id, stale string) (address, error) {
	c := b.connectionTo(id)
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return address{}, context.Cause(ctx)
	}
	known := c.current.token != ""
	refused := known && c.current.token == stale
	now := time.Now()
	switch {
	case known && !refused && now.Before(c.renew):
		return c.current, nil
	case refused && c.unproven >= freeRenewals && now.Sub(c.asked) < renewEvery:
		return c.current, nil
	}
	c.asked = now
	fresh, renew, err := b.askAddress(ctx, id)
	if err != nil {
		if known && !refused && !gone(err) {
			return c.current, nil // it may still work
		}
		return address{}, err
	}
	c.current, c.renew, c.unproven = fresh, renew, c.unproven+1
	return c.current, nil
}

// accepted notes that the proxy of a VM accepted a token.
func (b *Backend) accepted(ctx context.Context, id, token string) {
	c := b.connectionTo(id)
	select {
	case c.turn <- struct{}{}:
		if c.current.token == token {
			c.unproven = 0
		}
		<-c.turn
	case <-ctx.Done():
	}
}

// askAddress asks the API for a fresh token, and returns when to ask again.
func (b *Backend) askAddress(ctx context.Context, id string) (address, time.Time, error) {
	found, date, err := b.runtime(ctx, id)
	if err != nil {
		return address{}, time.Time{}, err
	}
	if found.Connection == nil || found.Connection.Token == "" {
		return address{}, time.Time{}, fmt.Errorf("VM %q is not ready: Google gives no connection for it yet; try again in a minute", id)
	}
	base, err := b.site.checkProxyURL(found.Connection.URL)
	if err == nil && !isToken(found.Connection.Token) {
		err = errors.New("its token has an unknown form")
	}
	if err != nil {
		return address{}, time.Time{}, fmt.Errorf("connect to VM %q: %w", id, err)
	}
	return address{base, found.Connection.Token}, time.Now().Add(usable(found.Connection.ExpireTime, date)), nil
}

// usable returns how long a token is used: until shortly before its end, by Google's clock,
// because this computer's may be wrong by hours.
func usable(end, date time.Time) time.Duration {
	if date.IsZero() {
		date = time.Now()
	}
	life := min(max(end.Sub(date), leastLifetime), mostLifetime)
	return life - min(life/5, 5*time.Minute)
}
