package client

import (
	"net/http"
	"sync/atomic"
	"testing"

	"colabrelay/shared/contract"
)

// prompting is an executor whose run waits at the prompt with offset 3, until it is answered. The
// same attempt again is accepted without effect.
func prompting(t *testing.T) *executor {
	var answered atomic.Value
	return newExecutor(t, func(s seen) (int, any) {
		running := contract.Execution{ExecutionID: "e", Status: contract.StatusRunning, NextOffset: 4}
		if s.method == http.MethodGet {
			return http.StatusOK, running
		}
		if old := answered.Swap(string(s.body)); old != nil && old != string(s.body) {
			answered.Store(old)
			return http.StatusConflict, refusalBody(contract.CodeConflict)
		}
		return http.StatusOK, running
	})
}

var atThree = contract.Input{Text: "x", Offset: func() *int64 { n := int64(3); return &n }()}

func TestInputWhoseAnswerIsLostIsAcceptedOnceOrNotReportedAsAccepted(t *testing.T) {
	for _, alone := range []bool{true, false} {
		e := prompting(t)
		client := e.acquainted(t)
		if !alone { // somebody else has answered
			if _, err := client.Input(t.Context(), "e", contract.Input{Text: "y", Offset: atThree.Offset}); err != nil {
				t.Fatal(err)
			}
		}
		e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
		x, err := client.Input(t.Context(), "e", atThree)
		if accepted := err == nil && x.Status == contract.StatusRunning; accepted != alone {
			t.Errorf("accepted: %v, want %v; %v", accepted, alone, err)
		}
		if !alone {
			wantKind(t, err, KindTimeout)
		}
	}
}
