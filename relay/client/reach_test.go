package client

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// soon is the reach limit in these tests.
const soon = time.Second

// impatient is a client with that time.
func impatient(t *testing.T, e *executor, transport http.RoundTripper) *Client {
	t.Helper()
	c := newClient(t, Config{BaseURL: e.URL, Secret: testSecret(t, testKey), Transport: transport})
	c.timeouts.reach = soon
	return c
}

// away is a network whose connections are refused while gone says so.
type away struct {
	http.RoundTripper
	tries atomic.Int32
	gone  func(try int32) bool
}

func (a *away) RoundTrip(req *http.Request) (*http.Response, error) {
	if a.gone(a.tries.Add(1)) {
		return a.RoundTripper.RoundTrip(refusedPort(req))
	}
	return a.RoundTripper.RoundTrip(req)
}

func (a *away) CloseIdleConnections() { a.RoundTripper.(*http.Transport).CloseIdleConnections() }

func offlinePage(w http.ResponseWriter) {
	w.Header().Set("Ngrok-Error-Code", "ERR_NGROK_3200")
	w.WriteHeader(http.StatusNotFound)
}

func TestACallWithoutAnExecutorEndsSoonAndSaysWhatWasTried(t *testing.T) {
	tier.Long(t)
	always := func(int32) bool { return true }
	for name, test := range map[string]struct {
		gone      func(int32) bool
		page      bool
		kind      Kind
		neverSent bool
	}{
		"nothing listens":       {always, false, KindUnreachable, true},
		"the tunnel is offline": {func(int32) bool { return false }, true, KindTunnelOffline, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, nil)
			if test.page {
				e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool { offlinePage(w); return true })
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			ctx = WithReachLimit(ctx)
			c := impatient(t, e, &away{RoundTripper: NewTransport(), gone: test.gone})
			began := time.Now()
			_, err := c.Submit(ctx, contract.Submit{Code: "1"})
			if took := time.Since(began); took < soon/2 {
				t.Errorf("it took %v", took)
			}
			got := wantKind(t, err, test.kind)
			if !strings.Contains(got.Message, " attempts and 1 s") || strings.Contains(got.Message, " in 1 attempts") || got.Hint == "" {
				t.Errorf("message %q, hint %q", got.Message, got.Hint)
			}
			if NeverSent(err) != test.neverSent {
				t.Errorf("never sent: %v", NeverSent(err))
			}
		})
	}
}

func TestAConnectionThatBreaksAfterItWorkedIsRetriedUntilItWorksAgain(t *testing.T) {
	tier.Long(t)
	const outage = 3 * soon
	for name, test := range map[string]struct {
		works func(attempt int32) bool // during the outage
		ctx   func(context.Context) context.Context
		hang  bool // the first submit's answer is lost
	}{
		// The first attempt requests the instance: its answer belongs to this call.
		"after a signed answer":                {func(attempt int32) bool { return attempt == 1 }, WithReachLimit, false},
		"after a submit whose answer was lost": {func(attempt int32) bool { return attempt == 1 }, WithReachLimit, true},
		"if no caller asked for an early end":  {func(int32) bool { return false }, func(ctx context.Context) context.Context { return ctx }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newExecutor(t, func(seen) (int, any) { return 200, contract.Execution{ExecutionID: "e"} })
			start := time.Now()
			c := impatient(t, e, &away{RoundTripper: NewTransport(), gone: func(attempt int32) bool {
				return time.Since(start) < outage && !test.works(attempt)
			}})
			if test.hang {
				known := e.served().Instance
				c.instance.Store(&known)
				e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
			}
			got, err := c.Submit(test.ctx(t.Context()), contract.Submit{Code: "1"})
			if took := time.Since(start); err != nil || got.ExecutionID != "e" || took < outage {
				t.Errorf("%+v, %v after %v", got, err, took)
			}
		})
	}
}

func TestATryThatMayHaveArrivedIsRememberedPastTheLastOne(t *testing.T) {
	tier.Long(t)
	e := newExecutor(t, func(seen) (int, any) { return 200, contract.Execution{ExecutionID: "e"} })
	e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
	c := impatient(t, e, &away{RoundTripper: NewTransport(), gone: func(try int32) bool { return try > 1 }})
	known := e.served().Instance
	c.instance.Store(&known)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	if _, err := c.Submit(WithReachLimit(ctx), contract.Submit{Code: "1"}); err == nil || NeverSent(err) || !mayHaveArrived(err) {
		t.Errorf("a submit that may have run is mistaken for one that was never sent: %v", err)
	}
}

// An attempt whose answer arrives too late would make an outcome uncertain that a refusal has
// settled.
func TestARefusedCallMakesItsLastAttemptInTimeForAnAnswer(t *testing.T) {
	for limit, least := range map[time.Duration]time.Duration{time.Second: 20 * time.Millisecond, 45 * time.Second: answerTime} {
		synctest.Test(t, func(t *testing.T) {
			end := time.Now().Add(limit)
			d := &retryDelays{BackOff: NewBackOff(), began: time.Now(), end: end, refused: true}
			left := limit
			for next := d.NextBackOff(); next != backoff.Stop; next = d.NextBackOff() {
				<-time.After(next)
				left = time.Until(end)
			}
			if left < least || left > limit*3/4 {
				t.Errorf("the last attempt of a call of %v was made %v before its end", limit, left)
			}
		})
	}
}

// Under WithPatience a call ends once its attempts have failed for so long. A refusal is a sign of
// life, and starts the time anew.
func TestACallUnderPatienceEndsWhenNothingAnswers(t *testing.T) {
	const limit = 10 * time.Second
	refusals := func(every int) func(n int) error {
		return func(n int) error {
			if every > 0 && n%every == 0 {
				return &contract.Error{Code: contract.CodeKernelStarting, Message: "starting"}
			}
			return &Error{Kind: KindUnreachable, Message: "broken", sent: true}
		}
	}
	for name, test := range map[string]struct {
		attempt     func(n int) error
		least, most time.Duration
	}{
		"each attempt fails":         {refusals(0), limit, limit + 100*time.Millisecond},
		"a refusal now and then":     {refusals(2), 5 * time.Minute, 6 * time.Minute}, // the end of the caller's time
		"the executor always starts": {refusals(1), 5 * time.Minute, 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, Config{BaseURL: "http://x.test", Secret: testSecret(t, testKey)})
				ctx, cancel := context.WithTimeout(WithPatience(t.Context(), limit), 5*time.Minute+30*time.Second)
				defer cancel()
				began, n := time.Now(), 0
				_, err := c.retry(ctx, idempotent, func() (answer, error) { n++; return answer{}, test.attempt(n) })
				if took := time.Since(began); err == nil || took < test.least || took > test.most {
					t.Errorf("it ended after %s and %d attempts: %v", took, n, err)
				}
			})
		})
	}
}
