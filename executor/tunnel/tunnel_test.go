package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/executor/tunnel/ngrokedge"
)

// The SDK's own goroutines end by themselves, but late: the pacer of heartbeats
// at its next tick (10 s), the watcher of a dropped session's heartbeats when
// it misses one (25 s), the reconnect loop when its pause is over (30 s at
// most). None of ours may be left.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("golang.ngrok.com/muxado/v2.(*Heartbeat).requester"),
		goleak.IgnoreAnyFunction("golang.ngrok.com/muxado/v2.(*Heartbeat).check"),
		goleak.IgnoreAnyFunction("golang.ngrok.com/ngrok/v2/internal/tunnel/client.(*reconnectingSession).connect"),
	)
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

func edgeConfig(edge *ngrokedge.Edge) Config {
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
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: limit}
	res, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
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

// each runs the conformance suite's cases on every implementation.
func each(t *testing.T, run func(t *testing.T, tun Tunnel)) {
	t.Run("none", func(t *testing.T) { run(t, NewNone("127.0.0.1:0")) })
	t.Run("ngrok", func(t *testing.T) { run(t, mustNew(t, edgeConfig(ngrokedge.Start(t)))) })
}

func TestEveryTunnelServesManyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, tun Tunnel) {
		echo := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { fmt.Fprint(w, req.URL.Query().Get("n")) })
		url := start(t, tun, echo).url(t)
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() {
				if _, body, err := visit(t, fmt.Sprintf("%s/?n=%d", url, n)); err != nil || body != fmt.Sprint(n) {
					t.Errorf("visitor %d got %q, %v", n, body, err)
				}
			})
		}
		all.Wait()
	})
}

func TestEveryTunnelHandsOnEachFlushAtOnce(t *testing.T) {
	each(t, func(t *testing.T, tun Tunnel) {
		seen := make(chan struct{})
		url := start(t, tun, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "first")
			_ = http.NewResponseController(w).Flush()
			<-seen
			fmt.Fprint(w, "last")
		})).url(t)
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		first := make([]byte, len("first"))
		if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first" {
			t.Fatalf("read %q, %v", first, err)
		}
		close(seen)
		if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != "last" {
			t.Fatalf("read %q, %v", rest, err)
		}
	})
}

func TestEveryTunnelLetsAnswersUnderWayArrive(t *testing.T) {
	each(t, func(t *testing.T, tun Tunnel) {
		entered, finish := make(chan struct{}), make(chan struct{})
		r := start(t, tun, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(entered)
			<-finish
			fmt.Fprint(w, "in time")
		}))
		url := r.url(t)
		answer := make(chan string, 1)
		go func() {
			_, body, err := visit(t, url)
			answer <- fmt.Sprint(body, err)
		}()
		<-entered
		shut := make(chan error, 1)
		go func() { shut <- r.server.Shutdown(t.Context()) }()
		until(t, "no new visitor is let in", func() bool {
			status, _, err := visit(t, url)
			return err != nil || status != http.StatusOK
		})
		close(finish)
		if err := <-shut; err != nil {
			t.Fatal(err)
		}
		if got := <-answer; got != "in time<nil>" {
			t.Errorf("the answer under way was %q", got)
		}
		r.stop(t)
		if r.err != nil {
			t.Errorf("an ended context gave the error %v", r.err)
		}
	})
}

func TestEveryTunnelEndsWithItsContext(t *testing.T) {
	each(t, func(t *testing.T, tun Tunnel) {
		r := start(t, tun, hello)
		url := r.url(t)
		r.stop(t)
		if r.err != nil {
			t.Errorf("an ended context gave the error %v", r.err)
		}
		if status, _, err := visit(t, url); err == nil && status == http.StatusOK {
			t.Error("the URL still answers")
		}
	})
}

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
