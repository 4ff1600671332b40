package tunneltest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/executor/tunnel"
	"colabrelay/shared/within"
)

const limit = within.Limit

// QuickRetry is a first delay for tests.
const QuickRetry = 20 * time.Millisecond

// Hello is a handler that answers "hello".
var Hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

// Running is a tunnel that runs with an HTTP server behind it.
type Running struct {
	t      *testing.T
	urls   chan string
	server *http.Server
	end    context.CancelFunc
	task   *tunnel.Task
}

// Start runs the tunnel until the test has ended.
func Start(t *testing.T, tun tunnel.Tunnel, h http.Handler) *Running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &Running{
		t:      t,
		urls:   make(chan string, 16),
		server: &http.Server{Handler: h, ConnContext: tunnel.ConnContext, ReadHeaderTimeout: limit},
		end:    cancel,
	}
	r.task = tunnel.Start(func() error {
		return tun.Run(ctx, func(url string) { r.urls <- url }, r.server.Serve)
	})
	t.Cleanup(func() { _ = r.Stop(); r.server.Close() })
	return r
}

// Stop ends the tunnel's context and returns what Run returned.
func (r *Running) Stop() error {
	r.t.Helper()
	r.end()
	return r.Ended()
}

// Ended waits until Run has returned, and returns its error.
func (r *Running) Ended() error {
	r.t.Helper()
	within.Receive(r.t, "the tunnel's end", r.task.Done)
	return r.task.Err()
}

// URL waits for the next URL that the tunnel reports.
func (r *Running) URL() string {
	r.t.Helper()
	select {
	case u := <-r.urls:
		return u
	case <-r.task.Done:
		r.t.Fatalf("the tunnel ended before it was ready: %v", r.task.Err())
	case <-time.After(limit):
		r.t.Fatal("the tunnel was not ready in time")
	}
	return ""
}

// Latest returns the URL that was reported last, or known if there is no new one.
func (r *Running) Latest(known string) string {
	for {
		select {
		case known = <-r.urls:
		default:
			return known
		}
	}
}

// Visit gets a page over a new connection.
func Visit(url string) (status int, body string, err error) {
	return get(newVisitor(""), url)
}

func get(client *http.Client, url string) (int, string, error) {
	res, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// VisitWithForgedHeaders gets a page from an address, with headers that claim
// another one.
func VisitWithForgedHeaders(t *testing.T, url, from string) (status int, body string) {
	t.Helper()
	visitor := newVisitor(from)
	visitor.Transport = forger{visitor.Transport}
	status, body, err := get(visitor, url)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

type forger struct{ http.RoundTripper }

func (f forger) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "Cf-Connecting-Ip", "True-Client-Ip"} {
		req.Header.Set(name, "127.0.0.8")
	}
	return f.RoundTripper.RoundTrip(req)
}

// newVisitor returns a client that makes a connection for each request, from the
// given address unless that is empty. It resolves stand-in names, and speaks
// plain HTTP to them.
func newVisitor(from string) *http.Client {
	dialer := &net.Dialer{}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return &http.Client{Timeout: limit, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       dialer.DialContext,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, standInAddress(address))
		},
	}}
}

const standInDomain = ".trycloudflare.com"

// StandInName returns a public host name that, for Visit, leads to a port of this
// machine. TLS ends at the service that a stand-in replaces, so https URLs of
// such names are visited by plain HTTP.
func StandInName(port string) string { return "standin-" + port + standInDomain }

// standInAddress returns the address to which a stand-in name leads. It returns
// other addresses unchanged.
func standInAddress(address string) string {
	host, _, _ := net.SplitHostPort(address)
	_, port, found := strings.Cut(strings.TrimSuffix(host, standInDomain), "standin-")
	if !found {
		return address
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// Log is a log that can be read while it is written.
type Log struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
