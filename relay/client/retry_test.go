package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// refusing refuses the first n requests with code.
func refusing(n int32, code contract.Code) func(seen) (int, any) {
	var count atomic.Int32
	return func(seen) (int, any) {
		if count.Add(1) <= n {
			return http.StatusServiceUnavailable, refusalBody(code)
		}
		return http.StatusOK, struct{}{}
	}
}

func TestPassingRefusalsAreTriedAgainOthersReturned(t *testing.T) {
	tier.Long(t)
	passingCodes := map[contract.Code]bool{
		contract.CodeRateLimited: true, contract.CodeKernelStarting: true, contract.CodeQueueFull: true, contract.CodeReplayed: true,
	}
	for _, code := range contract.Codes {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			e := newExecutor(t, refusing(2, code))
			_, err := e.client(t).Kernel(t.Context())
			tries := len(e.all())
			switch {
			case passingCodes[code] && (err != nil || tries != 3):
				t.Errorf("%d tries, %v", tries, err)
			case !passingCodes[code] && tries != 1:
				t.Errorf("%d tries", tries)
			case !passingCodes[code]:
				wantCode(t, err, code)
			}
		})
	}
}

func TestRefusalUntilTheTimeEndsIsReturned(t *testing.T) {
	tier.Long(t)
	e := newExecutor(t, refusing(1<<30, contract.CodeQueueFull))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := e.client(t).Kernel(ctx)
	wantCode(t, err, contract.CodeQueueFull)
}

func TestEachAttemptIsSignedAgain(t *testing.T) {
	e := newExecutor(t, refusing(2, contract.CodeKernelStarting))
	if _, err := e.client(t).Kernel(t.Context()); err != nil {
		t.Fatal(err)
	}
	signatures := map[string]bool{}
	for _, r := range e.all() {
		signatures[r.header.Get("Signature")] = true
	}
	if len(signatures) != 3 {
		t.Errorf("%d signatures in 3 tries", len(signatures))
	}
}

func TestLostAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		call  func(context.Context, *Client) error
		tries int // 1: not done twice
	}{
		"read":      {func(ctx context.Context, c *Client) error { _, err := c.Execution(ctx, "e", 0, 0, 0); return err }, 2},
		"interrupt": {func(ctx context.Context, c *Client) error { _, err := c.Interrupt(ctx, "e"); return err }, 2},
		"input": {func(ctx context.Context, c *Client) error {
			_, err := c.Input(ctx, "e", contract.Input{Text: "x"})
			return err
		}, 1},
		"input at a prompt": {func(ctx context.Context, c *Client) error {
			_, err := c.Input(ctx, "e", contract.Input{Text: "x", Offset: new(int64)})
			return err
		}, 2},
		"restart":  {func(ctx context.Context, c *Client) error { _, err := c.RestartKernel(ctx, "k"); return err }, 2},
		"cleanup":  {func(ctx context.Context, c *Client) error { _, err := c.Cleanup(ctx, "k"); return err }, 1},
		"shutdown": {func(ctx context.Context, c *Client) error { _, err := c.Shutdown(ctx); return err }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, func(seen) (int, any) { return 200, struct{}{} })
			client := e.acquainted(t)
			e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
			err := c.call(t.Context(), client)
			if got := len(e.all()); got != c.tries {
				t.Errorf("the executor was asked %d times, want %d", got, c.tries)
			}
			if c.tries == 1 {
				if wantKind(t, err, KindUnreachable); !mayHaveArrived(err) {
					t.Error("a lost answer was mistaken for an unsent request")
				}
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// refused is a network whose first n connections are refused.
type refused struct {
	http.RoundTripper
	left atomic.Int32
}

func (r *refused) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.left.Add(-1) >= 0 {
		return (&http.Transport{}).RoundTrip(refusedPort(req))
	}
	return r.RoundTripper.RoundTrip(req)
}

func (r *refused) CloseIdleConnections() { r.RoundTripper.(*http.Transport).CloseIdleConnections() }

// refusedPort leads req to a port where no program listens.
func refusedPort(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	req.URL.Host = "127.0.0.1:1"
	return req
}

func TestCallsThatWereSurelyNotSentAreTriedAgain(t *testing.T) {
	e := newExecutor(t, func(seen) (int, any) { return 200, struct{}{} })
	network := &refused{RoundTripper: NewTransport()}
	network.left.Store(2)
	c := newClient(t, Config{BaseURL: e.URL, Secret: testSecret(t, testKey), Transport: network})
	if _, err := c.Input(t.Context(), "e", contract.Input{Text: "x"}); err != nil {
		t.Fatal(err)
	}
	if got := len(e.all()); got != 2 { // the first asks who is there
		t.Errorf("%d requests", got)
	}
}

// Something on the way sent the request twice and lost the first answer.
func TestReplayedInputIsNotSentAgain(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.acquainted(t)
	e.respond = refusing(1, contract.CodeReplayed)
	_, err := c.Input(t.Context(), "e", contract.Input{Text: "x"})
	wantCode(t, err, contract.CodeReplayed)
	if got := len(e.all()); got != 1 {
		t.Errorf("%d requests", got)
	}
}

// The request that was repeated may have been executed: the call's time is over, which is no
// refusal.
func TestReplayedUntilTheTimeIsOverIsATimeout(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.acquainted(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	var tries atomic.Int32
	e.respond = func(seen) (int, any) {
		if tries.Add(1) == 2 {
			cancel(context.DeadlineExceeded)
		}
		return http.StatusServiceUnavailable, refusalBody(contract.CodeReplayed)
	}
	_, err := c.Submit(ctx, contract.Submit{RequestID: "r", Code: "1"})
	if wantKind(t, err, KindTimeout); refusal(err) != nil || !mayHaveArrived(err) {
		t.Errorf("%v is a refusal, or says that nothing arrived", err)
	}
}

func TestClockOffByAnHourIsCorrectedOnce(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			e := newExecutorAt(t, func() time.Time { return time.Now().Add(off) }, func(seen) (int, any) { return 200, struct{}{} })
			e.setBefore(func(http.ResponseWriter, *http.Request) bool { requests.Add(1); return false })
			c := e.client(t)
			for range 2 {
				if _, err := c.Kernel(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := requests.Load(); got != 3 {
				t.Errorf("%d requests for two calls, want one more for the correction", got)
			}
		})
	}
}

func TestClockThatCannotBeCorrectedEnds(t *testing.T) {
	e := newExecutor(t, func(seen) (int, any) {
		body := refusalBody(contract.CodeClockSkew)
		body.Error.ServerTime = time.Now().Unix()
		return http.StatusUnauthorized, body
	})
	_, err := e.client(t).Kernel(t.Context())
	wantCode(t, err, contract.CodeClockSkew)
	if got := len(e.all()); got != 2 {
		t.Errorf("%d tries", got)
	}
}

func TestCancelEndsTheCall(t *testing.T) {
	e := newExecutor(t, func(seen) (int, any) { return 200, struct{}{} })
	arrived := make(chan struct{}, 1)
	e.setBefore(func(_ http.ResponseWriter, r *http.Request) bool {
		arrived <- struct{}{}
		<-r.Context().Done()
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	c := e.client(t)
	go func() { _, err := c.Kernel(ctx); done <- err }()
	<-arrived
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestOfflineTunnelIsWaitedFor(t *testing.T) {
	e := newExecutor(t, func(seen) (int, any) { return 200, contract.Kernel{KernelID: "k"} })
	var pages atomic.Int32
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
		if pages.Add(1) > 2 {
			return false
		}
		w.Header().Set("Ngrok-Error-Code", "ERR_NGROK_3200")
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	got, err := e.client(t).Kernel(t.Context())
	if err != nil || got.KernelID != "k" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestUsedUpQuotaIsNotWaitedFor(t *testing.T) {
	e := newExecutor(t, nil)
	var pages atomic.Int32
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
		pages.Add(1)
		w.Header().Set("Ngrok-Error-Code", "ERR_NGROK_727")
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	_, err := e.client(t).Kernel(t.Context())
	wantKind(t, err, KindTunnelQuota)
	if pages.Load() != 1 {
		t.Errorf("%d tries", pages.Load())
	}
}

func TestSignedAnswerOfAnotherReleaseIsReported(t *testing.T) {
	for name, respond := range map[string]func(seen) (int, any){
		"no JSON":         func(seen) (int, any) { return 200, []byte("<html>") },
		"other types":     func(seen) (int, any) { return 200, []byte(`{"kernel_id":1}`) },
		"error, no code":  func(seen) (int, any) { return 500, struct{}{} },
		"redirect, ours?": func(seen) (int, any) { return 302, struct{}{} },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newExecutor(t, respond).client(t).Kernel(t.Context())
			wantKind(t, err, KindWrongProtocol)
		})
	}
}

// An empty answer says nothing of the executor's release.
func TestASignedEmptyAnswerIsReportedAsSuch(t *testing.T) {
	for status, says := range map[int]string{200: "the executor's answer is empty", 500: "the executor's answer is empty (HTTP 500)"} {
		_, err := newExecutor(t, func(seen) (int, any) { return status, []byte{} }).client(t).Kernel(t.Context())
		if got := wantKind(t, err, KindBadAnswer); got.Message != says || !strings.Contains(got.Hint, "try again") {
			t.Errorf("%d: %q, %q", status, got.Message, got.Hint)
		}
		if !mayHaveArrived(err) {
			t.Errorf("%d: taken for a promise that nothing was done", status)
		}
	}
}

// The transport itself sends a GET again when a kept connection turns out dead; the
// executor may have seen its nonce.
func TestRequestRepeatedByTheTransportIsSignedAgain(t *testing.T) {
	e := newExecutor(t, func(seen) (int, any) { return 200, contract.Kernel{KernelID: "k"} })
	c := e.client(t)
	if _, err := c.Kernel(t.Context()); err != nil { // the next one finds a kept connection
		t.Fatal(err)
	}
	e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
	var replays atomic.Int32
	after := e.hookAfter()
	e.setAfter(func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		if a.Code == http.StatusUnauthorized {
			replays.Add(1)
		}
		return after(w, a)
	})
	got, err := c.Kernel(t.Context())
	if err != nil || got.KernelID != "k" {
		t.Fatalf("%+v, %v", got, err)
	}
	if replays.Load() != 1 {
		t.Errorf("%d replays: the transport behaves otherwise than this test assumes", replays.Load())
	}
}

func TestConnectionTheTransportGaveUpDoesNotCountAsSent(t *testing.T) {
	var sent atomic.Bool
	trace := httptrace.ContextClientTrace(traceSent(t.Context(), &sent))
	trace.GetConn("host")
	trace.GotConn(httptrace.GotConnInfo{Reused: true}) // dead: nothing could be written
	if !sent.Load() {
		t.Error("a request on a connection counts as unsent")
	}
	trace.GetConn("host")
	if sent.Load() {
		t.Error("waiting for another connection counts as sent")
	}
}

// replayed follows from an answer that was lost, and is no outcome.
func TestReplayedUntilTheTimeEndsIsATimeout(t *testing.T) {
	tier.Long(t)
	e := newExecutor(t, refusing(1<<30, contract.CodeReplayed))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := e.client(t).Kernel(ctx)
	wantKind(t, err, KindTimeout)
}
