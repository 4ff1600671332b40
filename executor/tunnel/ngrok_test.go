package tunnel

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/executor/tunnel/ngroktest"
)

func TestNgrokTellsNothingOfTheMachine(t *testing.T) {
	edge := ngroktest.Start(t)
	start(t, mustNew(t, edgeConfig(edge)), hello).url(t)
	bind := edge.Binds()[0]
	if bind.ForwardsTo != "colab-relay" {
		t.Errorf("ForwardsTo is %q", bind.ForwardsTo)
	}
	if want := "colab-relay 1.2.3"; bind.Extra.Metadata != want || edge.Auths()[0].Extra.Metadata != want {
		t.Errorf("metadata is %q and %q", bind.Extra.Metadata, edge.Auths()[0].Extra.Metadata)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := string(edge.Auths()[0].Raw) + string(bind.Raw)
	for _, secret := range []string{host, program, fmt.Sprintf("pid=%d", os.Getpid()), "app://"} {
		if strings.Contains(all, secret) {
			t.Errorf("ngrok is told %q", secret)
		}
	}
}

func TestNgrokCarriesLargeBodiesUnchanged(t *testing.T) {
	edge := ngroktest.Start(t)
	url := start(t, mustNew(t, edgeConfig(edge)), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.Copy(w, req.Body); err != nil {
			t.Error(err)
		}
	})).url(t)
	// The text that scrub looks for, in a visitor's data, must stay.
	sent := bytes.Repeat([]byte(`{"ForwardsTo":"app://keep/me?pid=1","n":0}`), 20<<20/42)
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	// The echo begins before the body has ended, as HTTP allows.
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got := sha256.New()
	if n, err := io.Copy(got, res.Body); err != nil || n != int64(len(sent)) {
		t.Fatalf("%d of %d bytes came back, %v", n, len(sent), err)
	}
	if want := sha256.Sum256(sent); !bytes.Equal(got.Sum(nil), want[:]) {
		t.Error("the bytes came back changed")
	}
}

func TestClientAddrIsTheVisitorsAndNoHeaders(t *testing.T) {
	edge := ngroktest.Start(t)
	url := start(t, mustNew(t, edgeConfig(edge)), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, ClientAddr(req))
	})).url(t)
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	client := http.Client{Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", "6.6.6.6")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "127.0.0.9" {
		t.Errorf("ClientAddr is %q, %v", body, err)
	}
}

func TestClientAddrIsEmptyWithoutATunnel(t *testing.T) {
	url := start(t, NewNone("127.0.0.1:0"), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprintf(w, "%q", ClientAddr(req))
	})).url(t)
	if _, body, err := visit(t, url); err != nil || body != `""` {
		t.Errorf("ClientAddr is %s, %v", body, err)
	}
}

func TestADroppedSessionComesBackUnderItsURL(t *testing.T) {
	edge := ngroktest.Start(t)
	polls := make(chan struct{}, 1)
	r := start(t, mustNew(t, edgeConfig(edge)), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/poll" {
			polls <- struct{}{}
			<-req.Context().Done()
			return
		}
		fmt.Fprint(w, "hello")
	}))
	url := r.url(t)
	for drop := range 3 {
		cut := make(chan bool, 1)
		go func() {
			status, _, err := visit(t, url+"/poll")
			cut <- err != nil || status == http.StatusBadGateway
		}()
		<-polls
		edge.DropSessions()
		if !<-cut {
			t.Fatal("the poll outlived its session")
		}
		until(t, "the URL answers again", func() bool {
			_, body, err := visit(t, url)
			return err == nil && body == "hello"
		})
		binds := edge.Binds()
		if len(binds) != drop+2 {
			t.Fatalf("%d endpoints were asked for after drop %d", len(binds), drop+1)
		}
		last := binds[len(binds)-1]
		if last.ID == "" || last.Extra.Token == "" || last.ForwardsTo != forwardsTo {
			t.Errorf("the endpoint was asked for again as %s", last.Raw)
		}
	}
	if len(r.urls) != 0 {
		t.Errorf("the same URL was reported again: %q", <-r.urls)
	}
}

func TestAStoppedEndpointIsOpenedAnewAndItsURLReported(t *testing.T) {
	edge := ngroktest.Start(t)
	r := start(t, mustNew(t, edgeConfig(edge)), hello)
	old := r.url(t)
	edge.StopTunnel("", "stopped in the dashboard")
	now := r.url(t)
	if now == old {
		t.Fatalf("both endpoints are at %s", now)
	}
	if _, body, err := visit(t, now); err != nil || body != "hello" {
		t.Errorf("the new URL gave %q, %v", body, err)
	}
	// A dropped session must bring back the new endpoint only.
	edge.DropSessions()
	until(t, "the new URL answers again", func() bool {
		_, body, err := visit(t, now)
		return err == nil && body == "hello"
	})
	if edge.Online(old) {
		t.Error("the stopped endpoint is online again")
	}
}

func TestARefusalEndsAtOnceWithOneLine(t *testing.T) {
	for _, c := range []struct{ code, token, bind, says string }{
		{"ERR_NGROK_105", "ERR_NGROK_105", "", "get-started/your-authtoken"},
		{"ERR_NGROK_107", "ERR_NGROK_107", "", "reset or revoked"},
		{"ERR_NGROK_121", "ERR_NGROK_121", "", "newer release"},
		{"ERR_NGROK_199", "ERR_NGROK_199", "", "docs/errors/err_ngrok_199"},
		{"ERR_NGROK_4018", "ERR_NGROK_4018", "", "verified"},
		{"ERR_NGROK_320", "", "ERR_NGROK_320", "another account"},
		{"ERR_NGROK_725", "", "ERR_NGROK_725", "used up"},
	} {
		t.Run(c.code, func(t *testing.T) {
			edge := ngroktest.Start(t)
			edge.RefuseToken(c.token)
			edge.RefuseBind(c.bind)
			began := time.Now()
			err := start(t, mustNew(t, edgeConfig(edge)), hello).ended(t)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("it took %s", took)
			}
			var refused *Refused
			if !errors.As(err, &refused) || refused.Code != c.code {
				t.Fatalf("Run ended with %v", err)
			}
			if text := err.Error(); strings.ContainsAny(text, "\r\n") || !strings.Contains(text, c.says) || strings.Contains(text, testToken) {
				t.Errorf("it says %q", text)
			}
			if n := len(edge.Auths()); n != 1 {
				t.Errorf("%d logins were tried", n)
			}
		})
	}
}

func TestATokenRevokedLaterEndsTheTunnel(t *testing.T) {
	edge := ngroktest.Start(t)
	r := start(t, mustNew(t, edgeConfig(edge)), hello)
	r.url(t)
	edge.RefuseToken("ERR_NGROK_107")
	edge.DropSessions()
	var refused *Refused
	if err := r.ended(t); !errors.As(err, &refused) || refused.Code != "ERR_NGROK_107" {
		t.Errorf("Run ended with %v", err)
	}
}

func TestAnEndpointStoppedForGoodEndsTheTunnel(t *testing.T) {
	edge := ngroktest.Start(t)
	r := start(t, mustNew(t, edgeConfig(edge)), hello)
	r.url(t)
	edge.StopTunnel("ERR_NGROK_727", "no requests left")
	var refused *Refused
	if err := r.ended(t); !errors.As(err, &refused) || refused.Code != "ERR_NGROK_727" {
		t.Errorf("Run ended with %v", err)
	}
}

// quick makes the waits of a tunnel short.
func quick(t *testing.T, c Config, patience time.Duration) *ngrokTunnel {
	t.Helper()
	n := mustNew(t, c).(*ngrokTunnel)
	n.retry, n.patience = 20*time.Millisecond, patience
	return n
}

func TestADomainStillOnlineIsWaitedFor(t *testing.T) {
	edge := ngroktest.Start(t)
	c := edgeConfig(edge)
	c.Domain = "lab.ngrok.app"
	dead := start(t, mustNew(t, c), hello)
	url := dead.url(t)
	next := start(t, quick(t, c, busyPatience), hello)
	until(t, "the second was told to wait twice", func() bool { return len(edge.Binds()) >= 3 })
	dead.stop(t)
	if got := next.url(t); got != url {
		t.Errorf("the second is at %s, the first was at %s", got, url)
	}
}

func TestADomainOnlineForEverIsGivenUp(t *testing.T) {
	edge := ngroktest.Start(t)
	edge.RefuseBind("ERR_NGROK_334")
	r := start(t, quick(t, edgeConfig(edge), 100*time.Millisecond), hello)
	var refused *Refused
	if err := r.ended(t); !errors.As(err, &refused) || refused.Code != "ERR_NGROK_334" {
		t.Errorf("Run ended with %v", err)
	}
	if len(edge.Binds()) < 2 {
		t.Error("it was not tried again")
	}
}

func TestASlowEdgeHoldsUpNeitherTheLocalListenerNorTheEnd(t *testing.T) {
	edge := ngroktest.Start(t)
	edge.Delay(time.Minute)
	public := start(t, mustNew(t, edgeConfig(edge)), hello)
	local := start(t, NewNone("127.0.0.1:0"), hello).url(t)
	until(t, "the login is under way", func() bool { return len(edge.Auths()) == 1 })
	if _, body, err := visit(t, local); err != nil || body != "hello" {
		t.Errorf("the local URL gave %q, %v", body, err)
	}
	began := time.Now()
	public.stop(t)
	if took := time.Since(began); took > 5*time.Second || public.err != nil {
		t.Errorf("the end took %s and gave %v", took, public.err)
	}
}

func TestAnUnreachableNgrokIsTriedAgainUntilItIsThere(t *testing.T) {
	edge := ngroktest.Start(t)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := edgeConfig(edge)
	c.Server = gone.Addr().String()
	gone.Close()
	log := &lines{}
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	r := start(t, mustNew(t, c), hello)
	until(t, "the failure is logged", func() bool { return strings.Contains(log.String(), "refused") })

	relay, err := net.Listen("tcp", c.Server)
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	go forward(relay, edge.Addr)
	if _, body, err := visit(t, r.url(t)); err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
}

func TestAForgedCertificateIsNotTrusted(t *testing.T) {
	edge, forged := ngroktest.Start(t), ngroktest.Start(t)
	c := edgeConfig(forged)
	c.CAFile = edge.CAFile
	log := &lines{}
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	start(t, mustNew(t, c), hello)
	until(t, "the fault is logged", func() bool { return strings.Contains(log.String(), "certificate") })
	if len(forged.Auths()) != 0 {
		t.Error("the token was sent")
	}
}

func TestLogsNeverHoldTheToken(t *testing.T) {
	edge := ngroktest.Start(t)
	edge.RefuseToken("ERR_NGROK_108")
	c := edgeConfig(edge)
	log := &lines{}
	c.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	start(t, mustNew(t, c), hello)
	until(t, "the refusal is logged", func() bool { return strings.Contains(log.String(), "ERR_NGROK_108") })
	if strings.Contains(log.String(), testToken) {
		t.Errorf("the log holds the token:\n%s", log)
	}
}

// forward carries each connection to addr until l is closed.
func forward(l net.Listener, addr string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", addr)
		if err != nil {
			in.Close()
			continue
		}
		go carry(in, out)
	}
}

func carry(a, b net.Conn) {
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(a, b); a.Close() })
	both.Go(func() { _, _ = io.Copy(b, a); b.Close() })
	both.Wait()
}

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
