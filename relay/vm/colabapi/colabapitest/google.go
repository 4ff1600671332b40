// Package colabapitest imitates Google on this computer: the Colab API, the OAuth pages, and
// the proxies of VMs in front of a real Jupyter server with real kernels. Its VMs are this
// computer. It is for tests only.
//
// It imitates what the API's reference says, and what others reported; it proves nothing about
// Google. Start reading at Google, then api.go, oauth.go and proxy.go.
package colabapitest

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// proxyDomain is that of all VMs.
const proxyDomain = ".prod.colab.dev"

// Google is one imitation with its own accounts and VMs, and the transport that leads there. Its
// fields may be changed until the first request; its methods are safe at any time.
type Google struct {
	// PageSize splits lists of VMs. 0 gives all at once, as the API does today.
	PageSize int

	t         testing.TB
	http      *httptest.Server
	transport *http.Transport
	account   *account

	mu         sync.Mutex
	vms        map[string]*machine
	order      []string            // of creation
	operations map[string]*pending // by name
	byRequest  map[string]*pending // by requestId
	refusals   []rpcError          // of the next creations
	intercepts []func(http.ResponseWriter, *http.Request) bool
	requests   []string // method and path of every request
	secrets    []string // all tokens ever given
	sockets    map[net.Conn]bool
	server     *jupyterServer // nil until it is needed
}

// Start starts an imitation without VMs.
func Start(t testing.TB) *Google {
	t.Helper()
	g := &Google{t: t, transport: &http.Transport{}, vms: map[string]*machine{}, operations: map[string]*pending{}, byRequest: map[string]*pending{}, sockets: map[net.Conn]bool{}}
	g.account = newAccount(g)
	g.http = httptest.NewUnstartedServer(g)
	g.http.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	g.http.Start()
	t.Cleanup(g.close)
	return g
}

func (g *Google) close() {
	g.DropSockets()
	g.CloseIdleConnections()
	g.http.CloseClientConnections()
	g.http.Close()
	for _, id := range g.Running() {
		g.End(id)
	}
	if g.server != nil {
		leave()
	}
}

// Break makes everything unreachable.
func (g *Google) Break() {
	g.http.Listener.Close()
	g.http.CloseClientConnections()
}

// RoundTrip implements http.RoundTripper: whatever a request names, it comes here.
func (g *Google) RoundTrip(r *http.Request) (*http.Response, error) {
	own := r.Clone(r.Context())
	own.Host = r.URL.Host
	own.URL.Scheme, own.URL.Host = "http", g.http.Listener.Addr().String()
	return g.transport.RoundTrip(own)
}

// CloseIdleConnections closes those of the transport.
func (g *Google) CloseIdleConnections() { g.transport.CloseIdleConnections() }

// Intercept lets f answer requests first. It returns whether it did.
func (g *Google) Intercept(f func(http.ResponseWriter, *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.intercepts = append(g.intercepts, f)
}

// Requests counts the requests whose method and path, such as "GET /v1beta/runtimes", begin
// with prefix.
func (g *Google) Requests(prefix string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// Secrets returns every token, code and secret that was ever given to anybody.
func (g *Google) Secrets() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.secrets)
}

// newSecret returns a random text that begins with prefix, and remembers it.
func (g *Google) newSecret(prefix string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newSecretLocked(prefix)
}

func (g *Google) newSecretLocked(prefix string) string {
	s := prefix + rand.Text()
	g.secrets = append(g.secrets, s)
	return s
}

// ServeHTTP implements http.Handler.
func (g *Google) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.requests = append(g.requests, r.Method+" "+r.URL.Path)
	intercepts := slices.Clone(g.intercepts)
	g.mu.Unlock()
	for _, f := range intercepts {
		if f(w, r) {
			return
		}
	}
	g.Serve(w, r)
}

// Serve gives a request its effect, without what Intercept added.
func (g *Google) Serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.Host, proxyDomain):
		g.proxy(w, r, strings.TrimSuffix(r.Host, proxyDomain))
	case r.Host+r.URL.Path == "accounts.google.com/o/oauth2/auth":
		g.account.page(w, r)
	case r.Host+r.URL.Path == "oauth2.googleapis.com/token":
		g.account.token(w, r)
	case r.Host == "colaboratory.googleapis.com":
		g.api(w, r)
	default:
		http.NotFound(w, r)
	}
}
