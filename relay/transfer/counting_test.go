package transfer

import (
	"net/http"
	"sync"
	"testing"
)

// counting counts requests by method and path, and calls a test's function before each.
type counting struct {
	mu     sync.Mutex
	seen   map[string]int
	before func(*http.Request)
	inner  http.Transport
}

func (c *counting) transport() http.RoundTripper {
	c.inner.DisableCompression = true
	c.inner.MaxIdleConnsPerHost = 32
	return c
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[r.Method+" "+r.URL.Path]++
	before := c.before
	c.mu.Unlock()
	if before != nil {
		before(r)
	}
	return c.inner.RoundTrip(r)
}

// CloseIdleConnections lets client.Close reach the real transport.
func (c *counting) CloseIdleConnections() { c.inner.CloseIdleConnections() }

// of returns how many requests of a kind were sent since the last reset.
func (c *counting) of(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[kind]
}

func (c *counting) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.seen)
}

// step sets a function that is called before each request, from any goroutine.
func (c *counting) step(t testing.TB, f func(*http.Request)) {
	set := func(f func(*http.Request)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.before = f
	}
	set(f)
	t.Cleanup(func() { set(nil) })
}

const (
	askContent  = "GET /v1/files/content"
	askContents = "POST /v1/files/contents"
	askStart    = "POST /v1/uploads"
	askBatch    = "POST /v1/batches"
)
