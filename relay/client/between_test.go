package client

import (
	"context"
	"errors"
	"io"
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
