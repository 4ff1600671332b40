// Package ngroktest is for tests only: an ngrok edge on loopback. It speaks the agent
// protocol (TLS, muxado, JSON calls) to the real ngrok SDK and plain HTTP to visitors.
// Tests can make it misbehave.
//
// It must not be linked into a program, and holds no logic of this project: to the SDK
// and to visitors it responds as ngrok does. Its public URLs are http://127.0.0.1:port,
// so that visitors need no resolver and no certificate. COLAB_RELAY_NGROK_SERVER (Addr)
// and COLAB_RELAY_NGROK_CA (CAFile) make a program use it.
//
// Start reading at Edge; agent.go is the agents' side, public.go the visitors' side.
package ngroktest

import (
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// Edge is a running edge. Its methods may be called at any time.
type Edge struct {
	Addr   string // where agents connect: host:port
	CAFile string // PEM file of the certificate that agents must trust

	listener net.Listener
	done     chan struct{} // closed when the edge stops
	work     sync.WaitGroup

	mu          sync.Mutex
	conns       map[net.Conn]bool // agents' connections
	publics     []*public
	refuseToken string
	auths       []Auth
	binds       []Bind
	requests    int
	serial      int
}

// Start runs an edge until the test has ended.
func Start(t testing.TB) *Edge {
	t.Helper()
	e, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// Open runs an edge until Close. It writes its certificate into dir.
func Open(dir string) (*Edge, error) {
	web := httptest.NewTLSServer(nil) // for its certificate of 127.0.0.1
	web.Close()
	caFile := filepath.Join(dir, "ngrok-ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	if err := os.WriteFile(caFile, text, 0o600); err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	if err != nil {
		return nil, err
	}
	e := &Edge{
		Addr:     l.Addr().String(),
		CAFile:   caFile,
		listener: l,
		done:     make(chan struct{}),
		conns:    map[net.Conn]bool{},
	}
	e.work.Go(e.acceptAgents)
	return e, nil
}

// Close ends the edge and all that it started.
func (e *Edge) Close() {
	close(e.done)
	e.listener.Close()
	e.DropSessions()
	e.mu.Lock()
	publics := e.publics
	e.mu.Unlock()
	for _, p := range publics {
		p.server.Close()
	}
	e.work.Wait()
}

// RefuseToken makes the edge refuse each login with the code, such as
// "ERR_NGROK_105". An empty code accepts logins again.
func (e *Edge) RefuseToken(code string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuseToken = code
}

// DropSessions cuts every agent's connection, as a network fault does.
func (e *Edge) DropSessions() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.conns {
		c.Close()
	}
}

// StopTunnel stops every endpoint, as the dashboard does. The agents' sessions stay
// up.
func (e *Edge) StopTunnel(code, message string) {
	var notices []func()
	e.mu.Lock()
	for _, p := range e.publics {
		if a, id := p.agent, p.bindID; a != nil {
			notices = append(notices, func() { a.stopTunnel(id, code, message) })
			p.agent = nil
		}
	}
	e.mu.Unlock()
	for _, notify := range notices {
		notify()
	}
}

// URL returns the public URL that was assigned last, or "".
func (e *Edge) URL() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.publics) == 0 {
		return ""
	}
	return e.publics[len(e.publics)-1].url
}

// Online says whether an agent serves the public URL.
func (e *Edge) Online(url string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.publics, func(p *public) bool { return p.url == url && p.agent != nil })
}

// Auths returns the logins so far, including refused ones.
func (e *Edge) Auths() []Auth {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.auths)
}

// Binds returns the endpoints requested so far, including refused ones.
func (e *Edge) Binds() []Bind {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.binds)
}

// Requests returns how many requests visitors made; ngrok's quota counts those.
func (e *Edge) Requests() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests
}
