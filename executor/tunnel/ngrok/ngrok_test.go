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
	if _, body, err := visit(start(t, mustNew(t, c), hello).URL()); err != nil || body != "hello" || seen.Load() != 2 {
		t.Errorf("%q, %v, %d connections", body, err, seen.Load())
	}
}
