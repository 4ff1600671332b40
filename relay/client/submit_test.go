package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"colabrelay/shared/contract"
)

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
			if !MayHaveArrived(err) || !strings.Contains(err.Error(), string(test.code)+": refused") {
				t.Errorf("%v", err)
			}
		})
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
