package remoterun

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

// broken is a network on which each submit ends with this error.
type broken struct {
	executor *linetest.Executor
	err      error
}

func (b broken) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		return nil, b.err
	}
	arrived := httptest.NewRequest(req.Method, req.URL.String(), nil)
	arrived.Header = req.Header.Clone()
	x, _, err := b.executor.Open(arrived)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	b.executor.Answer(w, x, http.StatusOK, []byte(`{"kernel_id":"k"}`))
	return w.Result(), nil
}

func TestAnUnansweredSubmitSaysWhetherTheCodeWasRun(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for want, end := range map[string]error{"the code was not run: ": refused, "the code may have been submitted": client.Arrived(refused)} {
		synctest.Test(t, func(t *testing.T) { // the client tries for a while
			secret := auth.GenerateSecret()
			network := broken{linetest.NewExecutor(secret, contract.Instance{ID: "i", Start: "s"}, time.Now), end}
			c, err := client.New(client.Config{BaseURL: "http://x.test", Secret: secret, Transport: network})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(client.WithReachLimit(t.Context()), time.Minute)
			defer cancel()
			_, err = c.Submit(ctx, contract.Submit{Code: "1"})
			if err := unsubmitted(err, "r1"); err == nil || !strings.HasPrefix(err.Error(), want) || client.MayRun(err) != strings.Contains(err.Error(), "request_id r1") {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
	refusal := &contract.Error{Code: contract.CodeQueueFull, Message: "full"}
	if got := unsubmitted(refusal, "r1"); got != error(refusal) {
		t.Errorf("a refusal: %v", got)
	}
}
