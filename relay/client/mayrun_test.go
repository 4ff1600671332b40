package client

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

// unsignedStatuses are some statuses of answers that come from between, each with an empty body, a
// page and an error in JSON.
var unsignedStatuses = []int{200, 204, 302, 401, 403, 404, 407, 408, 409, 413, 429, 502, 530, 999}

// A submit that was sent and got no signed answer may run, whatever else answered. Nothing else
// that a call ends with says so.
func TestASubmitWithoutASignedAnswerMayRun(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter){"none": hangUp}
	for name, a := range unsignedAnswers {
		answers[name] = func(w http.ResponseWriter) {
			for key, value := range a.header {
				w.Header().Set(key, value)
			}
			w.WriteHeader(a.status)
			_, _ = io.WriteString(w, a.body)
		}
	}
	for _, status := range unsignedStatuses {
		for _, body := range []string{"", "<html>ERR_NGROK_725</html>", `{"error":{"code":"queue_full","message":"m"}}`} {
			answers[http.StatusText(status)+" "+body] = func(w http.ResponseWriter) {
				w.WriteHeader(status)
				if status != http.StatusNoContent && status != http.StatusNotModified {
					_, _ = io.WriteString(w, body)
				}
			}
		}
	}
	for name, answer := range answers {
		for _, cut := range []bool{false, true} { // the connection, before that answer to the same submit
			t.Run(fmt.Sprint(name, cut), func(t *testing.T) {
				t.Parallel()
				e, runs := newRunningExecutor(t)
				c := e.acquainted(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				e.setAfter(func(w http.ResponseWriter, _ *httptest.ResponseRecorder) bool {
					if cut {
						cut = false
						hangUp(w)
						return true
					}
					answer(w)
					cancel() // some are tried again
					return true
				})
				_, err := c.Submit(ctx, contract.Submit{RequestID: "once", Code: "1"})
				if err == nil || !MayRun(err) {
					t.Errorf("%v: may run: %v", err, MayRun(err))
				}
				e.setAfter(nil)
				if got, err := c.Submit(t.Context(), contract.Submit{RequestID: "once", Code: "1"}); err != nil || got.RequestID != "once" || len(runs.ran) != 1 {
					t.Errorf("the repeated submit: %+v, %v, ran %v", got, err, runs.ran)
				}
			})
		}
	}
}

// scripted is a network without one: an executor that answers a GET, and an end of any other
// request.
type scripted struct {
	executor *linetest.Executor
	ends     []error // of the requests in turn; the last one repeats
}

func (s *scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		end := s.ends[0]
		s.ends = s.ends[min(1, len(s.ends)-1):]
		return nil, end
	}
	arrived := httptest.NewRequest(req.Method, req.URL.String(), nil)
	arrived.Header = req.Header.Clone()
	x, _, err := s.executor.Open(arrived)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	s.executor.Answer(w, x, http.StatusOK, []byte(`{"kernel_id":"k"}`))
	return w.Result(), nil
}

// A request may be sent twice, by the transport with a fresh token of a proxy or by a further
// attempt. If something answered the first copy, an error of the second does not mean that nothing
// was sent.
func TestARequestThatMayHaveArrivedOnceIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, arrived := range []bool{true, false} {
			var end error = &RouteError{Message: "gone", Hint: "h"}
			ends := []error{end}
			if arrived {
				ends = []error{Arrived(end), end}
			}
			executor := linetest.NewExecutor(testSecret(t, testKey), contract.Instance{ID: "i", Start: "s"}, time.Now)
			c := newClient(t, Config{BaseURL: "http://x.test", Secret: testSecret(t, testKey), Transport: &scripted{executor, ends}})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			_, err := c.Submit(ctx, contract.Submit{Code: "1"})
			cancel()
			if wantKind(t, err, KindTunnelOffline); MayRun(err) != arrived || MayHaveArrived(err) != arrived || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("arrived %v: may run %v, may have arrived %v, %v", arrived, MayRun(err), MayHaveArrived(err), err)
			}
		}
	})
}

// Frames of HTTP/2 (RFC 9113, section 6).
const (
	frameHeaders  = 1
	frameSettings = 4
	frameGoAway   = 7
)

// goingAway accepts one connection with HTTP/2, and says GOAWAY to its first request, as if it had
// handled none. Whether it passed the request on is its own business. No other connection follows.
func goingAway(t *testing.T, l net.Listener) {
	conn, err := l.Accept()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	l.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	frame := func(kind byte, payload ...byte) {
		head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
		_, _ = conn.Write(append(append(head, 0, 0, 0, 0, 0), payload...))
	}
	if _, err := io.ReadFull(conn, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		t.Error(err)
		return
	}
	frame(frameSettings)
	for {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head[:4])>>8)); err != nil {
			return
		}
		if head[3] == frameHeaders {
			frame(frameGoAway, 0, 0, 0, 0, 0, 0, 0, 0)
		}
	}
}

// A proxy that passes a request on and says by HTTP/2 that it did not handle it makes the transport
// send the request again. The code may still run.
func TestASubmitThatHTTP2TakesBackMayRun(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.StartTLS()
	certificates := server.TLS.Certificates
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	server.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates, NextProtos: []string{"h2"}})
	must(t, err)
	served := make(chan bool)
	go func() { defer close(served); goingAway(t, l) }()
	transport := NewTransport()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	transport.ForceAttemptHTTP2 = true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newClient(t, Config{
		BaseURL: "https://" + l.Addr().String(), Secret: testSecret(t, testKey), Transport: transport,
		OnAttempt: func(error) { cancel() },
	})
	c.instance.Store(&contract.Instance{ID: "instance-1", Start: "start-1"})
	_, err = c.Submit(ctx, contract.Submit{Code: "1"})
	if err == nil || !MayRun(err) {
		t.Errorf("%v: may run: %v", err, MayRun(err))
	}
	transport.CloseIdleConnections()
	<-served
}

// What a proxy in this computer's settings answers in place of the executor is named, with the
// proxy's address but not its password. What only a person can change is not tried again.
func TestARefusalByThisComputersProxyIsNamed(t *testing.T) {
	for status, want := range map[int]Kind{403: KindProxy, 407: KindProxy, 400: KindProxy, 429: KindUnreachable, 502: KindUnreachable, 503: KindUnreachable} {
		for _, scheme := range []string{"https", "http"} {
			var requests atomic.Int32
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.WriteHeader(status)
			}))
			defer proxy.Close()
			address, _ := url.Parse(proxy.URL)
			address.User = url.UserPassword("someone", testKey)
			transport := NewTransport()
			transport.Proxy = http.ProxyURL(address)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := newClient(t, Config{BaseURL: scheme + "://vm.test", Secret: testSecret(t, testKey), Transport: transport, OnAttempt: func(error) {
				if requests.Load() > 1 {
					cancel()
				}
			}})
			_, err := c.Kernel(ctx)
			if scheme == "http" && status == 429 {
				want = KindTunnelError
			}
			e := wantKind(t, err, want)
			if again := requests.Load() > 1; again == (want == KindProxy) || !strings.Contains(e.Message, proxy.URL) && want != KindTunnelError || strings.Contains(e.Message, "someone") {
				t.Errorf("%s, %d: tried again %v: %s", scheme, status, again, e.Message)
			}
		}
	}
}

// foreign are answers of a login page, a filter or a proxy, by their status.
var foreign = []int{200, 204, 302, 403, 404, 407, 408, 502, 511}

// A page where an executor has answered before passes by. Where none has, the address is wrong, or
// the network wants a login: that is said at once.
func TestAForeignPageIsWaitedForWhereAnExecutorAnswered(t *testing.T) {
	for _, status := range foreign {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			e, _ := newRunningExecutor(t)
			known, unknown := e.acquainted(t), e.client(t)
			var pages atomic.Int32
			e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
				if pages.Add(1) > 3 || r.URL.Path == contract.PathHealth {
					return false
				}
				w.Header().Set("Location", "http://127.0.0.1:1/login")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "<html>log in</html>")
				return true
			})
			if status != 204 && status != 408 && status != 502 {
				_, err := unknown.Kernel(t.Context())
				wantKind(t, err, KindNotExecutor)
			}
			if _, err := known.Kernel(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// impatient is a proxy without a network that gives up an answer after some time.
type impatient struct {
	executor *linetest.Executor
	patience time.Duration
	cuts     bool // the connection, instead of answering 504
	requests int
}

func (p *impatient) RoundTrip(req *http.Request) (*http.Response, error) {
	p.requests++
	arrived := httptest.NewRequest(req.Method, req.URL.String(), nil)
	arrived.Header = req.Header.Clone()
	x, _, err := p.executor.Open(arrived)
	if err != nil {
		return nil, err
	}
	query, _ := url.ParseQuery(arrived.URL.RawQuery)
	wait, _ := time.ParseDuration(query.Get("wait_seconds") + "s")
	<-time.After(min(wait, p.patience))
	w := httptest.NewRecorder()
	switch {
	case wait < p.patience:
		p.executor.Answer(w, x, http.StatusOK, []byte(`{"execution_id":"e1","status":"running"}`))
	case p.cuts:
		req.Body = nil
		return nil, Arrived(errors.New("cut"))
	default:
		w.WriteHeader(http.StatusGatewayTimeout)
	}
	return w.Result(), nil
}

// A proxy that does not wait for an answer as long as the executor may shortens what is asked for.
func TestLongPollsFitAProxysPatience(t *testing.T) {
	for patience, cuts := range map[time.Duration]bool{50 * time.Second: false, 30 * time.Second: false, 29 * time.Second: true, 10 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			between := &impatient{executor: linetest.NewExecutor(testSecret(t, testKey), contract.Instance{ID: "i", Start: "s"}, time.Now), patience: patience, cuts: cuts}
			c := newClient(t, Config{BaseURL: "http://x.test", Secret: testSecret(t, testKey), Transport: between})
			for range 5 {
				if _, err := c.Execution(t.Context(), "e1", 0, contract.MaxWait, 0); err != nil {
					t.Fatal(err)
				}
			}
			if between.requests > 7 {
				t.Errorf("%s, cuts %v: %d requests for 5 answers", patience, cuts, between.requests)
			}
		})
	}
}
