package remoterun

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// stopped is the network to an executor that was stopped.
type stopped struct{}

func (stopped) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

func TestAnUnansweredSubmitSaysWhetherTheCodeWasRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the client tries for a while
		c, err := client.New(client.Config{BaseURL: "http://stopped.test", Secret: auth.GenerateSecret(), Transport: stopped{}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Submit(client.WithReachLimit(t.Context()), contract.Submit{Code: "1"})
		if err := unsubmitted(err); err == nil || !strings.HasPrefix(err.Error(), "the code was not run: ") {
			t.Errorf("a stopped executor: %v", err)
		}
	})
	refusal := &contract.Error{Code: contract.CodeQueueFull, Message: "full"}
	if got := unsubmitted(refusal); got != error(refusal) {
		t.Errorf("a refusal: %v", got)
	}
}

// Whatever answers a submit in the executor's place, the person learns that the code may run. The
// executor has run it here.
func TestASubmitAnsweredByAStrangerSaysThatTheCodeMayRun(t *testing.T) {
	vm := startVM(t)
	for _, status := range []int{200, 204, 302, 401, 404, 407, 413, 429, 451, 502, 503} {
		var submits atomic.Int32
		url := replacing(t, vm, func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || submits.Add(1) > 1 {
				return false
			}
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			return true
		})
		c := newClient(t, url, nil)
		var out console
		err := Run(t.Context(), VM{Runtime: "test", Client: c}, Code{Text: "1", Timeout: time.Minute}, out.console(t))
		if err == nil { // it was tried again, under the same request_id
			continue
		}
		if !client.MayRun(err) || !strings.Contains(err.Error(), "may have been submitted") || !strings.Contains(err.Error(), "colab-relay ps") {
			t.Errorf("%d: %v", status, err)
		}
		if list, err := newClient(t, vm, nil).List(t.Context(), 1); err != nil || len(list.Executions) != 1 {
			t.Errorf("%d: the executor lists %+v, %v", status, list, err)
		}
	}
}

// replacing is a proxy of the executor at target. Where replace returns true, the relay gets its
// answer in place of the executor's.
func replacing(t *testing.T, target string, replace func(w http.ResponseWriter, r *http.Request) bool) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the signature covers it
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lost := httptest.NewRecorder()
		proxy.ServeHTTP(lost, r)
		if replace(w, r) {
			return
		}
		for name, values := range lost.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(lost.Code)
		_, _ = w.Write(lost.Body.Bytes())
	}))
	t.Cleanup(s.Close)
	return s.URL
}
