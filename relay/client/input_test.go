package client

import (
	"net/http"
	"sync/atomic"
	"testing"

	"colabrelay/shared/contract"
)

// prompting is an executor whose run waits at the prompt with offset 3, until it is answered.
func prompting(t *testing.T) (e *executor, answered *atomic.Int32) {
	answered = &atomic.Int32{}
	return newExecutor(t, func(s seen) (int, any) {
		running := contract.Execution{ExecutionID: "e", Status: contract.StatusRunning, NextOffset: 4}
		if s.method == http.MethodGet {
			return http.StatusOK, running
		}
		if answered.Load() > 0 {
			return http.StatusConflict, refusalBody(contract.CodeConflict)
		}
		answered.Add(1)
		return http.StatusOK, running
	}), answered
}

var atThree = contract.Input{Text: "x", Offset: func() *int64 { n := int64(3); return &n }()}

func TestALostAnswerToInputIsNoConflict(t *testing.T) {
	e, answered := prompting(t)
	client := e.acquainted(t)
	e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
	x, err := client.Input(t.Context(), "e", atThree)
	if err != nil || x.Status != contract.StatusRunning || answered.Load() != 1 {
		t.Errorf("%+v, %v; answered %d times", x, err, answered.Load())
	}
	if got := e.all(); len(got) != 3 || got[2].method != http.MethodGet {
		t.Errorf("%d requests", len(got))
	}
}

func TestAPromptThatSomebodyElseAnsweredIsAConflict(t *testing.T) {
	e, _ := prompting(t)
	client := e.acquainted(t)
	if _, err := client.Input(t.Context(), "e", atThree); err != nil {
		t.Fatal(err)
	}
	_, err := client.Input(t.Context(), "e", atThree)
	wantCode(t, err, contract.CodeConflict)
}
