package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
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

// Two writes are two packets, which wake the executor twice.
func TestAQuickCallIsOneWrite(t *testing.T) {
	e, _ := newRunningExecutor(t)
	var writes atomic.Int64
	transport := NewTransport()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return countingConn{conn, &writes}, err
	}
	c := newClient(t, Config{BaseURL: e.URL, Secret: testSecret(t, testKey), Transport: transport})
	for i := range int64(3) { // the first call asks for the instance too
		if _, err := c.Submit(t.Context(), contract.Submit{Code: "1+1", WaitSeconds: 10}); err != nil {
			t.Fatal(err)
		}
		if got := writes.Load(); got != i+2 {
			t.Errorf("%d writes after %d calls", got, i+1)
		}
	}
}

// countingConn counts what is written to it.
type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
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

func TestNothingOfACallIsReadable(t *testing.T) {
	const mark = "a-secret-mark"
	e := newExecutor(t, func(s seen) (int, any) {
		return 200, contract.Execution{ExecutionID: "e", Events: []contract.Event{{Text: mark}}}
	})
	c := e.acquainted(t)
	var wire bytes.Buffer
	e.setBefore(func(_ http.ResponseWriter, r *http.Request) bool {
		_ = r.Write(&wire)
		return false
	})
	e.setAfter(func(_ http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		_ = a.Result().Write(&wire)
		return true
	})
	_, _ = c.Submit(t.Context(), contract.Submit{Code: mark})
	_, _ = c.Inspect(t.Context(), mark)
	if wire.Len() == 0 || bytes.Contains(wire.Bytes(), []byte(mark)) {
		t.Errorf("the mark is in what was sent:\n%s", wire.String())
	}
}

// Of an answer that no executor signed, only its beginning is read.
func TestUnsignedAnswerIsBounded(t *testing.T) {
	e, _ := newRunningExecutor(t)
	var sent atomic.Int64
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
		chunk := make([]byte, 1<<20)
		for range 64 {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return true
			}
		}
		return true
	})
	c := e.client(t)
	_, err := c.Health(t.Context())
	wantKind(t, err, KindNotExecutor)
	_, err = c.Kernel(t.Context())
	wantKind(t, err, KindNotExecutor)
	// Three requests were made: the second call asked for the executor's protocol. Of each
	// answer, the system buffers some.
	if n := sent.Load(); n > 3*16<<20 {
		t.Errorf("%d bytes were taken of 192 MiB", n)
	}
}

func TestSignedAnswerIsBounded(t *testing.T) {
	e := newExecutor(t, func(seen) (int, any) { return 200, noise(maxAnswerBytes + 1) })
	_, err := e.client(t).Kernel(t.Context())
	if wantKind(t, err, KindBadAnswer); !errors.Is(err, bounded.ErrTooLong) || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("error %v", err)
	}
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
	tier.Long(t)
	e, _ := newRunningExecutor(t)
	health := fmt.Sprintf(`{"status":"ok","protocol":%d}`, contract.Protocol)
	tick := time.NewTicker(250 * time.Millisecond)
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
	c.timeouts = timeouts{answer: 5 * time.Second, stall: 5 * time.Second} // the whole takes 7 s
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
		transport := NewTransport()
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
		// The answer arrives before the part was sent. The call must still end.
		e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		})
		if _, err := c.PutPart(t.Context(), "u-1", bytes.NewReader(make([]byte, 8<<20)), contract.Range{Length: 8 << 20}); err == nil {
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
