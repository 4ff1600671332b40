package client

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// Something on the way sent the request twice and lost the first answer.
func TestReplayedInputIsNotSentAgain(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.acquainted(t)
	e.respond = func(seen) (int, any) { return http.StatusServiceUnavailable, refusalBody(contract.CodeReplayed) }
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
	if wantKind(t, err, KindTimeout); refusal(err) != nil || !MayHaveArrived(err) {
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
