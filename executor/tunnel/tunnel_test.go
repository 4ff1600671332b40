package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/executor/tunnel/ngroktest"
)

// The SDK's own goroutines end by themselves, but late: the pacer of heartbeats
// at its next tick (10 s), the watcher of a dropped session's heartbeats when
// it misses one (25 s), the reconnect loop when its pause is over (30 s at
// most). None of ours may be left.
//
// Under the name cloudflared this program is the stand-in for that one.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == cloudflaredProgram {
		os.Exit(standIn(os.Args, os.Stderr))
	}
	goleak.VerifyTestMain(m, lateGoroutines...)
}

// lateGoroutines are the SDK's.
var lateGoroutines = []goleak.Option{
	goleak.IgnoreAnyFunction("golang.ngrok.com/muxado/v2.(*Heartbeat).requester"),
	goleak.IgnoreAnyFunction("golang.ngrok.com/muxado/v2.(*Heartbeat).check"),
	goleak.IgnoreAnyFunction("golang.ngrok.com/ngrok/v2/internal/tunnel/client.(*reconnectingSession).connect"),
}

const (
	testToken = "2abcDEFtestTokenThatMustNeverBePrinted_7xYz"
	limit     = 20 * time.Second
)

// running is a tunnel under test with an HTTP server behind it.
type running struct {
	urls   chan string
	server *http.Server
	end    context.CancelFunc
	done   chan struct{}
	err    error // after done
}

func edgeConfig(edge *ngroktest.Edge) Config {
	return Config{Kind: KindNgrok, Token: testToken, Version: "1.2.3", Server: edge.Addr, CAFile: edge.CAFile}
}

func start(t *testing.T, tun Tunnel, h http.Handler) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{
		urls:   make(chan string, 16),
		server: &http.Server{Handler: h, ConnContext: ConnContext, ReadHeaderTimeout: limit},
		end:    cancel,
		done:   make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		r.err = tun.Run(ctx, func(url string) { r.urls <- url }, r.server.Serve)
	}()
	t.Cleanup(func() { r.stop(t); r.server.Close() })
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.end()
	r.ended(t)
}

// ended waits for Run's own end.
func (r *running) ended(t *testing.T) error {
	t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(limit):
		t.Fatal("the tunnel did not end")
		return nil
	}
}

func (r *running) url(t *testing.T) string {
	t.Helper()
	select {
	case u := <-r.urls:
		return u
	case <-r.done:
		t.Fatalf("the tunnel ended before it was ready: %v", r.err)
	case <-time.After(limit):
		t.Fatal("the tunnel was not ready in time")
	}
	return ""
}

// latest is the URL reported last, or the one known already.
func (r *running) latest(known string) string {
	for {
		select {
		case known = <-r.urls:
		default:
			return known
		}
	}
}

func mustNew(t *testing.T, c Config) Tunnel {
	t.Helper()
	tun, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tun
}

// visit gets a page over a connection of its own.
func visit(t *testing.T, url string) (int, string, error) {
	t.Helper()
	res, err := newVisitor("").Get(url)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// newVisitor makes a client that takes a connection for each request, from the
// address if there is one. It finds the stand-in's public names, and speaks
// plain HTTP to them: TLS ends at Cloudflare.
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

func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-deadline.C:
			t.Fatalf("did not happen in time: %s", what)
		case <-tick.C:
		}
	}
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

func TestNoneSaysWhyItCanNotListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = NewNone(l.Addr().String()).Run(t.Context(), func(string) { t.Error("ready") }, nil)
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

func TestNoneOnAllAddressesHasAURLToDial(t *testing.T) {
	url := start(t, NewNone(":0"), hello).url(t)
	if _, body, err := visit(t, url); err != nil || body != "hello" {
		t.Errorf("%s gave %q, %v", url, body, err)
	}
}

func TestParseKind(t *testing.T) {
	for _, c := range []struct {
		flag, token string
		want        Kind
		bad         bool
	}{
		{"", "", KindNone, false},
		{"", testToken, KindNgrok, false},
		{"none", testToken, KindNone, false},
		{"ngrok", "", KindNgrok, false},
		{"telepathy", "", "", true},
	} {
		got, err := ParseKind(c.flag, c.token)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("ParseKind(%q, …) = %q, %v", c.flag, got, err)
		}
	}
}

func TestNewFindsFaultsBeforeAnythingRuns(t *testing.T) {
	for name, c := range map[string]Config{
		"no token":        {Kind: KindNgrok},
		"domain is a URL": {Kind: KindNgrok, Token: testToken, Domain: "https://a.ngrok.app/path"},
		"domain has port": {Kind: KindNgrok, Token: testToken, Domain: "a.ngrok.app:443"},
		"not a domain":    {Kind: KindNgrok, Token: testToken, Domain: "my domain"},
		"server no port":  {Kind: KindNgrok, Token: testToken, Server: "localhost"},
		"no such CA file": {Kind: KindNgrok, Token: testToken, CAFile: "/does/not/exist"},
		"CA without PEM":  {Kind: KindNgrok, Token: testToken, CAFile: "/dev/null"},
		"no kind":         {},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c)
			if err == nil {
				t.Fatal("no fault found")
			}
			if errors.As(err, new(*Refused)) || strings.Contains(err.Error(), testToken) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestADomainMayBePastedAsAURL(t *testing.T) {
	for _, pasted := range []string{"a.ngrok.app", " https://a.ngrok.app/ "} {
		if got, err := domainURL(pasted); err != nil || got != "https://a.ngrok.app" {
			t.Errorf("domainURL(%q) = %q, %v", pasted, got, err)
		}
	}
}
