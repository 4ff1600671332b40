// Package colabapi starts and uses Colab's VMs through Google's official API
// (colaboratory.googleapis.com, v1beta) and through the proxy in front of each VM's Jupyter
// server.
//
// The API is in beta. What is not in its public reference, and was only reported by others or
// assumed, has the word "unverified" in a comment. Nothing here was tested against Google.
//
// Beside relay/client, this is the only package that makes HTTP calls. It must not write a
// token anywhere but into the login file, must not put one into an error or a log, must not
// follow redirects, and must not report a VM as gone unless the API itself says so: a proxy
// answers 404 also to a token that has expired.
//
// Start reading at Backend, then call.go (one call of the API), connection.go (the proxy's
// token), jupyter.go (Upload and Exec) and login.go.
package colabapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sync"

	"colabrelay/relay/client"
	"colabrelay/relay/vm"
)

// TestVariable names the environment variable with the address of a stand-in for Google on
// this computer. Addresses elsewhere are refused, so that nobody is led to send tokens away.
const TestVariable = "RELAY_TEST_COLAB_API"

// Config is what a Backend needs.
type Config struct {
	Dir    string              // folder of the login file
	Getenv func(string) string // only TestVariable is read
	Log    *slog.Logger        // nil for none; never gets tokens, code, or what VMs send
}

// Backend is a vm.Backend, and a vm.Proxied. It is safe for concurrent use.
type Backend struct {
	site      site
	transport *http.Transport
	tokens    *tokens
	log       *slog.Logger

	mu          sync.Mutex
	connections map[string]*connection // by the VM's id
}

var (
	_ vm.Backend = (*Backend)(nil)
	_ vm.Proxied = (*Backend)(nil)
)

// New returns a Backend. It sends nothing, and reads the login at the first call.
func New(cfg Config) (*Backend, error) {
	google, err := siteOf(cfg.Getenv)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	b := &Backend{
		site: google, transport: google.newTransport(), log: cfg.Log.With("component", "colabapi"),
		connections: map[string]*connection{},
	}
	b.tokens = newTokens(func() (credentials, error) { return loadCredentials(cfg.Dir, google) }, b.transport)
	return b, nil
}

// Close closes idle connections.
func (b *Backend) Close() { b.transport.CloseIdleConnections() }

// Name implements vm.Backend.
func (b *Backend) Name() string { return "api" }

// idPattern is what the API accepts as an id (RFC 1034). Ids are part of paths.
var idPattern = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("VM id %q: use at most 63 lower-case letters, digits and dashes, and begin with a letter", id[:min(len(id), 64)])
	}
	return nil
}

// newTransport returns the transport for the API, the login and the proxies. On a stand-in's
// computer, names below .localhost are that computer (RFC 6761), which not every resolver knows.
func (s site) newTransport() *http.Transport {
	t := client.NewTransport()
	if s.test != nil {
		t.Proxy = nil
		t.DialContext = localDial(t.DialContext)
	}
	return t
}
