package ngrok

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/executor/tunnel/tunneltest"
	"colabrelay/shared/within"
)

var (
	start = tunneltest.Start
	visit = tunneltest.Visit
	hello = tunneltest.Hello
)

const testToken = "2abcDEFtestTokenThatMustNeverBePrinted_7xYz"

func edgeConfig(edge *ngroktest.Edge) Config {
	return Config{Token: testToken, Version: "1.2.3", Server: edge.Addr, CAFile: edge.CAFile}
}

func mustNew(t *testing.T, c Config) *Tunnel {
	t.Helper()
	tun, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tun
}

// impatient returns a tunnel with short delays that gives up after the given time.
func impatient(t *testing.T, c Config, giveUp time.Duration) *Tunnel {
	t.Helper()
	tun := mustNew(t, c)
	tun.retry.First, tun.retry.GiveUp = tunneltest.QuickRetry, giveUp
	return tun
}

func TestADomainThatIsStillOnlineIsRetried(t *testing.T) {
	edge := ngroktest.Start(t)
	c := edgeConfig(edge)
	c.Domain = "lab.ngrok.app"
	dead := start(t, mustNew(t, c), hello)
	url := dead.URL()
	next := start(t, impatient(t, c, time.Hour), hello)
	within.Until(t, "the second was refused twice", func() bool { return len(edge.Binds()) >= 3 })
	_ = dead.Stop()
	if got := next.URL(); got != url {
		t.Errorf("the second is at %s, the first was at %s", got, url)
	}
}

func TestAForgedCertificateIsNotTrusted(t *testing.T) {
	forged := ngroktest.Start(t)
	c := edgeConfig(forged)
	c.CAFile = ""
	log := &tunneltest.Log{}
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	start(t, mustNew(t, c), hello)
	within.Until(t, "the fault is logged", func() bool { return strings.Contains(log.String(), "certificate") })
	if len(forged.Auths()) != 0 {
		t.Error("the token was sent")
	}
}

func TestLogsNeverHoldTheToken(t *testing.T) {
	edge := ngroktest.Start(t)
	edge.RefuseToken("ERR_NGROK_108")
	c := edgeConfig(edge)
	log := &tunneltest.Log{}
	c.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	start(t, mustNew(t, c), hello)
	within.Until(t, "the refusal is logged", func() bool { return strings.Contains(log.String(), "ERR_NGROK_108") })
	if strings.Contains(log.String(), testToken) {
		t.Errorf("the log holds the token:\n%s", log)
	}
}

// The first connection is refused by the proxy, the others go through it.
func TestTheTunnelGoesThroughAProxy(t *testing.T) {
	edge := ngroktest.Start(t)
	var seen atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1) == 1 || r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") != "Basic bWU6cEBzcw==" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		w.WriteHeader(http.StatusOK)
		client, _, hijacked := http.NewResponseController(w).Hijack()
		server, err := net.Dial("tcp", r.Host)
		if err = errors.Join(hijacked, err); err != nil {
			t.Error(err)
			return
		}
		go func() { io.Copy(server, client); server.Close() }()
		go func() { io.Copy(client, server); client.Close() }()
	}))
	defer proxy.Close()
	c := edgeConfig(edge)
	c.Proxy = func(*http.Request) (*url.URL, error) {
		return url.Parse("http://me:p%40ss@" + proxy.Listener.Addr().String())
	}
	if _, err := mustNew(t, c).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "the proxy 127.0.0.1:") || !strings.Contains(err.Error(), "407") || strings.Contains(err.Error(), "p@ss") {
		t.Errorf("%v", err)
	}
	if _, body, err := visit(start(t, mustNew(t, c), hello).URL()); err != nil || body != "hello" || seen.Load() < 2 { // the SDK may connect again
		t.Errorf("%q, %v, %d connections", body, err, seen.Load())
	}
}

// lateGoroutines are the SDK's. They end automatically, but late: the pacer of
// heartbeats at its next tick (10 s), the watcher of a dropped session's
// heartbeats when it misses one (25 s), the reconnect loop when its delay is
// over (30 s at most).
var lateGoroutines = []goleak.Option{
	goleak.IgnoreAnyFunction("golang.ngrok.com/muxado/v2.(*Heartbeat).requester"),
	goleak.IgnoreAnyFunction("golang.ngrok.com/muxado/v2.(*Heartbeat).check"),
	goleak.IgnoreAnyFunction("golang.ngrok.com/ngrok/v2/internal/tunnel/client.(*reconnectingSession).connect"),
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, lateGoroutines...) }

func TestNgrokConforms(t *testing.T) {
	tunneltest.Run(t, func(t *testing.T) tunneltest.Rig {
		edge := ngroktest.Start(t)
		return tunneltest.Rig{
			Tunnel: impatient(t, edgeConfig(edge), time.Hour),
			Drop:   edge.DropSessions,
			Change: func() { edge.StopTunnel("", "stopped in the dashboard") },
			Refuse: func() { edge.RefuseToken("ERR_NGROK_107") },
			Leaks:  append(lateGoroutines, goleak.IgnoreAnyFunction("colabrelay/executor/tunnel/ngroktest.(*Edge).openPublic.func1")),
		}
	})
}

func TestRefusal(t *testing.T) {
	for text, want := range map[string]string{
		"connection reset by peer": "none",
		"ERR_NGROK_105":            "final",
		"ERR_NGROK_108":            "temporary",
		"ERR_NGROK_334":            "temporary",
		"ERR_NGROK_4018":           "final",
	} {
		got := "none"
		if refused := refusal(errors.New(text)); refused != nil {
			got = map[bool]string{true: "temporary", false: "final"}[refused.Temporary]
		}
		if got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
