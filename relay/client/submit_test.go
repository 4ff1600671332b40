package client

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

func TestLostAnswerIsAskedForUnderTheSameRequestID(t *testing.T) {
	e, runs := newRunningExecutor(t)
	c := e.client(t)
	if _, err := c.Kernel(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
	got, err := c.Submit(t.Context(), contract.Submit{Code: "x += 1"})
	if err != nil {
		t.Fatal(err)
	}
	submits := e.submits(t)
	if len(submits) != 2 || submits[0].RequestID != submits[1].RequestID || submits[0].RequestID != got.RequestID {
		t.Errorf("submits %+v, answer %+v", submits, got)
	}
	if submits[1].intendedFor != "instance-1/start-1" {
		t.Errorf("the retry expects %q", submits[1].intendedFor)
	}
	if len(runs.ran) != 1 {
		t.Errorf("ran %v", runs.ran)
	}
}

// refusesSubmits refuses submits with a code, and nothing else.
func refusesSubmits(code contract.Code) func(seen) (int, any) {
	return func(r seen) (int, any) {
		if r.method == http.MethodPost {
			return http.StatusServiceUnavailable, refusalBody(code)
		}
		return http.StatusOK, struct{}{}
	}
}

// A caller that takes a refusal for the outcome may run the code again.
func TestARefusalDoesNotHideAnUnansweredSubmit(t *testing.T) {
	for name, test := range map[string]struct {
		code             contract.Code
		unanswered, last int32
	}{
		"the first attempt":                  {contract.CodeQueueFull, 1, 3},
		"the last attempt":                   {contract.CodeQueueFull, 2, 2},
		"before one that is not tried again": {contract.CodeLowMemory, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var attempts atomic.Int32
			e := newExecutor(t, refusesSubmits(test.code))
			c := e.acquainted(t)
			e.setAfter(func(w http.ResponseWriter, _ *httptest.ResponseRecorder) bool {
				n := attempts.Add(1)
				if n == test.last {
					cancel()
				}
				if n == test.unanswered {
					hangUp(w)
				}
				return n == test.unanswered
			})
			_, err := c.Submit(ctx, contract.Submit{RequestID: "once", Code: "1"})
			wantKind(t, err, KindTimeout)
			if !mayHaveArrived(err) || !strings.Contains(err.Error(), string(test.code)+": refused") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestQueueFullIsReturnedAtOnceOnRequest(t *testing.T) {
	e := newExecutor(t, refusesSubmits(contract.CodeQueueFull))
	_, err := e.client(t).Submit(WithQueueFull(t.Context()), contract.Submit{Code: "1"})
	wantCode(t, err, contract.CodeQueueFull)
	if n := len(e.submits(t)); n != 1 {
		t.Errorf("%d submits", n)
	}
}

func TestARefusalThatWillNotChangeIsReturned(t *testing.T) {
	e := newExecutor(t, refusesSubmits(contract.CodeConflict))
	c := e.acquainted(t)
	e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
	_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
	wantCode(t, err, contract.CodeConflict)
}

func TestRequestIDOfTheCallerIsKept(t *testing.T) {
	e, _ := newRunningExecutor(t)
	got, err := e.client(t).Submit(t.Context(), contract.Submit{RequestID: "mine-1", Code: "1"})
	if err != nil || got.RequestID != "mine-1" {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = e.client(t).Submit(t.Context(), contract.Submit{Code: "1"})
	if err != nil || !contract.RequestIDPattern.MatchString(got.RequestID) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFirstSubmitAsksWhoIsThere(t *testing.T) {
	e, _ := newRunningExecutor(t)
	if _, err := e.client(t).Submit(t.Context(), contract.Submit{Code: "1"}); err != nil {
		t.Fatal(err)
	}
	all := e.all()
	if len(all) != 2 || all[0].method != http.MethodGet {
		t.Fatalf("asked %+v", all)
	}
	if got := e.submits(t)[0].intendedFor; got != "instance-1/start-1" {
		t.Errorf("expects %q", got)
	}
}

func TestNewInstanceOnTheFirstTryIsFollowed(t *testing.T) {
	e, runs := newRunningExecutor(t)
	c := e.client(t)
	if _, err := c.Submit(t.Context(), contract.Submit{Code: "1"}); err != nil {
		t.Fatal(err)
	}
	e.becomes("instance-2/start-9")
	got, err := c.Submit(t.Context(), contract.Submit{RequestID: "second", Code: "2"})
	if err != nil || got.RequestID != "second" {
		t.Fatalf("%+v, %v", got, err)
	}
	if c.InstanceID() != "instance-2" || runs.ran["second"] != 1 {
		t.Errorf("instance %q, ran %v", c.InstanceID(), runs.ran)
	}
	submits := e.submits(t)
	if last := submits[len(submits)-1]; last.intendedFor != "instance-2/start-9" {
		t.Errorf("last submit expects %q", last.intendedFor)
	}
}

func TestNewInstanceOnARetryIsReturnedAndNothingRuns(t *testing.T) {
	e, runs := newRunningExecutor(t)
	c := e.client(t)
	if _, err := c.Kernel(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.setAfter(first(func(w http.ResponseWriter) bool { e.becomes("instance-2/start-9"); hangUp(w); return true }))
	_, err := c.Submit(t.Context(), contract.Submit{RequestID: "once", Code: "1"})
	wantCode(t, err, contract.CodeNewInstance)
	if got := len(e.submits(t)); got != 2 || len(runs.ran) != 1 {
		t.Errorf("%d submits, ran %v", got, runs.ran)
	}
	// Later submits mean the new one.
	if _, err := c.Submit(t.Context(), contract.Submit{RequestID: "later", Code: "1"}); err != nil {
		t.Fatal(err)
	}
	if submits := e.submits(t); submits[2].intendedFor != "instance-2/start-9" || len(submits) != 3 {
		t.Errorf("submits %+v", submits)
	}
}

// A tunnel's page is no promise that the executor did not see the request.
func TestNewInstanceAfterATunnelPageIsReturned(t *testing.T) {
	e, runs := newRunningExecutor(t)
	c := e.client(t)
	if _, err := c.Kernel(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := false
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
		if done {
			return false
		}
		done = true
		e.becomes("instance-2/start-9")
		w.WriteHeader(http.StatusBadGateway)
		return true
	})
	_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
	wantCode(t, err, contract.CodeNewInstance)
	if len(runs.ran) != 0 {
		t.Errorf("ran %v", runs.ran)
	}
}

func TestNewInstanceAfterAReplayIsReturned(t *testing.T) {
	e, runs := newRunningExecutor(t)
	c := e.client(t)
	if _, err := c.Kernel(t.Context()); err != nil {
		t.Fatal(err)
	}
	refuseOnce(e, contract.CodeReplayed)
	_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
	wantCode(t, err, contract.CodeNewInstance)
	if len(runs.ran) != 0 {
		t.Errorf("ran %v", runs.ran)
	}
}

// refuseOnce refuses the next request with code, signed, and becomes instance-2.
func refuseOnce(e *executor, code contract.Code) {
	respond, refused := e.respond, false
	e.respond = func(s seen) (int, any) {
		if refused {
			return respond(s)
		}
		refused = true
		e.becomes("instance-2/start-9")
		return http.StatusServiceUnavailable, refusalBody(code)
	}
}

// A refused connection and any other signed refusal are.
func TestNewInstanceAfterASignedRefusalIsFollowed(t *testing.T) {
	e, runs := newRunningExecutor(t)
	c := e.client(t)
	if _, err := c.Kernel(t.Context()); err != nil {
		t.Fatal(err)
	}
	refuseOnce(e, contract.CodeKernelStarting)
	if _, err := c.Submit(t.Context(), contract.Submit{Code: "1"}); err != nil {
		t.Fatal(err)
	}
	if len(runs.ran) != 1 {
		t.Errorf("ran %v", runs.ran)
	}
}

func TestInstanceTheCallerNamesIsNotReplaced(t *testing.T) {
	e, runs := newRunningExecutor(t)
	_, err := e.client(t).SubmitTo(t.Context(), "instance-0", contract.Submit{Code: "1"})
	wantCode(t, err, contract.CodeNewInstance)
	if len(runs.ran) != 0 || len(e.submits(t)) != 1 {
		t.Errorf("ran %v after %d requests", runs.ran, len(e.all()))
	}
}

func TestInstanceThatChangesAgainAndAgainEnds(t *testing.T) {
	e := newExecutor(t, func(s seen) (int, any) {
		if s.method == http.MethodGet {
			return 200, struct{}{}
		}
		return http.StatusConflict, refusalBody(contract.CodeNewInstance)
	})
	_, err := e.client(t).Submit(t.Context(), contract.Submit{Code: "1"})
	wantCode(t, err, contract.CodeNewInstance)
	if got := len(e.submits(t)); got != 2 {
		t.Errorf("%d submits", got)
	}
}

func TestSubmitWaitsNoLongerThanItsContext(t *testing.T) {
	e, _ := newRunningExecutor(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := e.client(t).Submit(ctx, contract.Submit{Code: "1", WaitSeconds: 45}); err != nil {
		t.Fatal(err)
	}
	if got := e.submits(t)[0].WaitSeconds; got > 19 || got <= 0 {
		t.Errorf("asked to wait %v s", got)
	}
}

func TestSubmitThatCannotBeWrittenIsAnError(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.client(t)
	if _, err := c.Submit(t.Context(), contract.Submit{Code: "1", TimeoutSeconds: math.NaN()}); err == nil {
		t.Error("NaN was sent")
	}
	if _, err := c.Submit(t.Context(), contract.Submit{Code: "1", WaitSeconds: 1e300}); err != nil {
		t.Error(err)
	}
}
