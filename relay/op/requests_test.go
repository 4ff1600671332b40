package op

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"regexp"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// mostRequests is what a silent run of ten minutes may cost of a tunnel's quota.
const mostRequests = 15

// TestSilentTenMinutesCostFewRequests has an agent do as the description says, with
// no pause, on a clock of the test. shared/e2e counts shorter runs of the
// real programs.
func TestSilentTenMinutesCostFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := unserved()
		run := f.run("silent")
		line := &direct{handler: f}
		c, err := client.New(client.Config{BaseURL: "http://bubble", Secret: f.secret, Transport: line})
		if err != nil {
			t.Fatal(err)
		}
		rt := runtimes.Runtime{Name: "test", Client: c}
		r := New(Config{Resolve: func(string) (runtimes.Runtime, error) { return rt, nil }, Hold: 45 * time.Second, Structured: true}) // the default

		<-time.After(time.Hour)
		if n := line.asked.Load(); n != 0 {
			t.Errorf("an idle relay made %d requests", n)
		}
		if _, err := c.Kernel(t.Context()); err != nil { // asked once by each relay, to know the instance
			t.Fatal(err)
		}
		before := line.asked.Load()
		time.AfterFunc(10*time.Minute, func() { run.end(contract.StatusSucceeded) })
		a := callWithProgress(t, r, "run_code_long", `{"code": "silence()"}`)
		next := `{"execution_id": "silent", "wait_seconds": ` + advisedWait(t) + `}`
		calls := 1
		for ; a.Status == "running"; calls++ {
			a = callWithProgress(t, r, "get_execution", next)
		}
		if a.Status != "succeeded" {
			t.Errorf("the run ended as %q", a.Status)
		}
		n := line.asked.Load() - before
		t.Logf("%d calls, %d requests", calls, n)
		if n > mostRequests {
			t.Errorf("%d requests in %d calls, want at most %d", n, calls, mostRequests)
		}
		<-time.After(time.Hour)
		if idle := line.asked.Load() - before - n; idle != 0 {
			t.Errorf("once idle the relay made %d requests", idle)
		}
	})
}

// direct carries requests to a handler and counts them.
type direct struct {
	handler http.Handler
	asked   atomic.Int64
}

func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	d.asked.Add(1)
	if req.Body != nil {
		defer req.Body.Close() // as http.RoundTripper demands
	}
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil {
		trace.GotConn(httptrace.GotConnInfo{}) // from here on the executor may have the request
	}
	arrived := httptest.NewRequestWithContext(req.Context(), req.Method, req.URL.String(), req.Body)
	arrived.Header = req.Header.Clone()
	w := httptest.NewRecorder()
	served := make(chan error, 1)
	go func() {
		defer func() {
			switch p := recover(); p {
			case nil:
				served <- nil
			case http.ErrAbortHandler:
				served <- io.EOF // what a client sees of it
			default:
				panic(p)
			}
		}()
		d.handler.ServeHTTP(w, arrived)
	}()
	select {
	case err := <-served:
		if err != nil {
			return nil, err
		}
		return w.Result(), nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// callWithProgress calls a tool. Most hosts ask for progress.
func callWithProgress(t *testing.T, r *Relay, name, args string) Run {
	t.Helper()
	h := &host{t: t, relay: r}
	return h.await(name, h.begin(name, json.RawMessage(args), func(Progress) {})).run(t)
}

// advisedWait is the wait_seconds that run_code_long's description tells agents to use.
func advisedWait(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`wait_seconds=(\d+)`).FindStringSubmatch(runLong().description)
	if found == nil {
		t.Fatal("run_code_long's description does not say how long to wait")
	}
	return found[1]
}

// A transfer seals on several processors; all other calls share one.
func TestACallThatMovesMuchDataUsesAllProcessors(t *testing.T) {
	all := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(all)
	r := New(Config{OneProcessor: true, Problems: []error{errors.New("any")}})
	during := func(tool string) (seen int) {
		r.Call(t.Context(), Request{Tool: tool}, func(Result) { seen = runtime.GOMAXPROCS(0) })
		return seen
	}
	if bulk, other, after := during("download_from_colab"), during("run_code_quick"), runtime.GOMAXPROCS(0); bulk != 2 || other != 1 || after != 1 {
		t.Errorf("processors of a download %d, of another call %d, afterwards %d; want 2, 1, 1", bulk, other, after)
	}
}
