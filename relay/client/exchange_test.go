package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

func TestWarmQuickCallIsOneRoundTripOnOneConnection(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.client(t)
	submit := func() {
		if _, err := c.Submit(t.Context(), contract.Submit{Code: "1+1", WaitSeconds: 10}); err != nil {
			t.Fatal(err)
		}
	}
	submit() // opens the connection and learns the instance
	before := len(e.all())
	for range 5 {
		submit()
	}
	if got := len(e.all()) - before; got != 5 {
		t.Errorf("%d requests for 5 calls", got)
	}
	if got := e.connections.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
}

func TestManyAtOnceEachGetTheirOwn(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.client(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			got, err := c.Submit(t.Context(), contract.Submit{RequestID: "", Code: "1"})
			if err != nil || got.ExecutionID != "e-"+got.RequestID {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	wg.Wait()
	ids := map[string]bool{}
	for _, s := range e.submits(t) {
		ids[s.RequestID] = true
	}
	if len(ids) != 20 {
		t.Errorf("%d request ids for 20 submits", len(ids))
	}
	if asked := len(e.all()) - 20; asked != 1 {
		t.Errorf("the instance was asked for %d times", asked)
	}
}

func TestBodiesAbove1KiBAreCompressedBothWays(t *testing.T) {
	long := strings.Repeat("x = 1\n", 1000)
	e := newExecutor(t, func(s seen) (int, any) {
		if s.path == contract.PathKernel {
			return 200, contract.Kernel{}
		}
		return 200, contract.Execution{ExecutionID: "e", Events: []contract.Event{{Text: long}}}
	})
	var compressed int
	e.setAfter(func(_ http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		if a.Header().Get("Content-Encoding") == "gzip" {
			compressed++
		}
		return false
	})
	got, err := e.client(t).Submit(t.Context(), contract.Submit{Code: long})
	if err != nil || len(got.Events) != 1 || got.Events[0].Text != long {
		t.Fatalf("answer %d events, %v", len(got.Events), err)
	}
	all := e.all()
	last := all[len(all)-1]
	if last.submit(t).Code != long || last.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("sent with headers %v", last.header)
	}
	if compressed != 1 {
		t.Errorf("%d compressed answers", compressed)
	}
	if all[0].header.Get("Content-Encoding") != "" {
		t.Error("a request without body was compressed")
	}
}

func TestIncompressibleBodyIsSentUncompressed(t *testing.T) {
	noise := make([]byte, 4096)
	_, _ = rand.Read(noise)
	if out, encoding := compress(noise); encoding != encodingPlain || !bytes.Equal(out, noise) {
		t.Errorf("%d bytes of noise became %d of encoding %q", len(noise), len(out), encoding)
	}
}

func TestDecompressionIsBounded(t *testing.T) {
	bomb := gzipped(make([]byte, 1<<20))
	if _, err := decompress(bomb, encodingGzip, 1<<20-1); !errors.Is(err, bounded.ErrTooLong) {
		t.Errorf("error %v", err)
	}
	if got, err := decompress(bomb, encodingGzip, 1<<20); err != nil || len(got) != 1<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, encoding := range []string{"br", "gzip, gzip"} {
		if _, err := decompress(bomb, encoding, 1<<21); err == nil {
			t.Errorf("%q accepted", encoding)
		}
	}
}

func TestAnswerIsBounded(t *testing.T) {
	e, _ := newRunningExecutor(t)
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
		chunk := make([]byte, 1<<20)
		for range maxAnswerBytes/len(chunk) + 2 {
			if _, err := w.Write(chunk); err != nil {
				return true
			}
		}
		return true
	})
	_, err := e.client(t).Health(t.Context())
	wantKind(t, err, KindBadAnswer)
}

func TestStalledAnswerTimesOut(t *testing.T) {
	for name, headers := range map[string]bool{"before the headers": false, "in the body": true} {
		t.Run(name, func(t *testing.T) {
			e, _ := newRunningExecutor(t)
			released := make(chan struct{})
			defer close(released)
			e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
				if headers {
					_, _ = io.WriteString(w, `{"status":`)
					_ = http.NewResponseController(w).Flush()
				}
				select {
				case <-released:
				case <-r.Context().Done():
				}
				return true
			})
			c := e.client(t)
			c.timeouts = timeouts{answer: 80 * time.Millisecond, stall: 80 * time.Millisecond}
			_, err := c.Health(t.Context())
			wantKind(t, err, KindTimeout)
		})
	}
}

func TestSlowBodyThatMovesIsNotCut(t *testing.T) {
	e, _ := newRunningExecutor(t)
	const health = `{"status":"ok","protocol":2}`
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
		for i := range len(health) {
			<-tick.C
			_, _ = io.WriteString(w, health[i:i+1])
			_ = http.NewResponseController(w).Flush()
		}
		return true
	})
	c := e.client(t)
	c.timeouts = timeouts{answer: 500 * time.Millisecond, stall: 500 * time.Millisecond} // the whole takes 700 ms
	if _, err := c.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestLongPollMayTakeItsWait(t *testing.T) {
	e := newExecutor(t, nil)
	e.respond = func(seen) (int, any) {
		<-time.After(150 * time.Millisecond)
		return 200, contract.Execution{ExecutionID: "e"}
	}
	c := e.client(t)
	c.timeouts.answer = 50 * time.Millisecond
	if _, err := c.Execution(t.Context(), "e", 0, time.Second, 0); err != nil {
		t.Fatal(err)
	}
	if got := len(e.all()); got != 1 {
		t.Errorf("%d tries", got)
	}
}

func TestWaitFitsIntoTheContext(t *testing.T) {
	with := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	for name, c := range map[string]struct {
		ctx      context.Context
		wait     time.Duration
		min, max time.Duration
	}{
		"no deadline":   {t.Context(), 10 * time.Second, 10 * time.Second, 10 * time.Second},
		"too long":      {t.Context(), time.Hour, contract.MaxWait, contract.MaxWait},
		"negative":      {t.Context(), -time.Second, 0, 0},
		"ample":         {with(time.Minute), 10 * time.Second, 10 * time.Second, 10 * time.Second},
		"cut":           {with(11 * time.Second), 30 * time.Second, 9 * time.Second, 10 * time.Second},
		"short context": {with(time.Second), 30 * time.Second, 700 * time.Millisecond, 800 * time.Millisecond},
		"over":          {with(-time.Second), 30 * time.Second, 0, 0},
	} {
		if got := fitWait(c.ctx, c.wait); got < c.min || got > c.max {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestHTTP2AndTLS(t *testing.T) {
	e, _ := newRunningExecutor(t)
	secure := httptest.NewUnstartedServer(e)
	secure.EnableHTTP2 = true
	secure.Config.ErrorLog = e.Config.ErrorLog
	secure.StartTLS()
	defer secure.Close()

	t.Run("trusted", func(t *testing.T) {
		transport := newTransport()
		pool := x509.NewCertPool()
		pool.AddCert(secure.Certificate())
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
		c := newClient(t, Config{BaseURL: secure.URL, Secret: testSecret(t, testKey), Transport: transport})
		var proto string
		e.setBefore(func(_ http.ResponseWriter, r *http.Request) bool { proto = r.Proto; return false })
		if _, err := c.Submit(t.Context(), contract.Submit{Code: "1"}); err != nil {
			t.Fatal(err)
		}
		if proto != "HTTP/2.0" {
			t.Errorf("spoke %s", proto)
		}
		// The answer arrives before the part was sent. The call must end all the same.
		e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		})
		if _, err := c.PutPart(t.Context(), "u-1", 0, make([]byte, 8<<20)); err == nil {
			t.Error("the part was accepted")
		}
		e.setBefore(nil)
	})
	t.Run("unknown certificate", func(t *testing.T) {
		c := newClient(t, Config{BaseURL: secure.URL, Secret: testSecret(t, testKey)})
		_, err := c.Health(t.Context())
		if e := wantKind(t, err, KindUnreachable); !strings.Contains(e.Message, "certificate") {
			t.Errorf("message %q", e.Message)
		}
	})
	t.Run("plain server at an https address", func(t *testing.T) {
		c := newClient(t, Config{BaseURL: strings.Replace(e.URL, "http:", "https:", 1), Secret: testSecret(t, testKey)})
		_, err := c.Health(t.Context())
		if e := wantKind(t, err, KindUnreachable); !strings.Contains(e.Message, "TLS") {
			t.Errorf("message %q", e.Message)
		}
	})
}
