package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
				if err == nil || !MayRun(err) || neverSent(err) {
					t.Errorf("%v: may run: %v, never sent: %v", err, MayRun(err), neverSent(err))
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
