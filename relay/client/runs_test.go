package client

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	"colabrelay/shared/contract"
)

// runs answers submits as an executor does that knows what it ran: one execution
// for each request_id. Everything else it answers with an empty object.
type runs struct {
	mu  sync.Mutex
	ran map[string]int
}

func (r *runs) respond(s seen) (int, any) {
	if s.method != http.MethodPost || s.path != contract.PathExecutions {
		return http.StatusOK, struct{}{}
	}
	var submit contract.Submit
	if err := json.Unmarshal(s.body, &submit); err != nil {
		return http.StatusBadRequest, refusalBody(contract.CodeBadRequest)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ran[submit.RequestID] == 0 {
		r.ran[submit.RequestID]++
	}
	return http.StatusOK, contract.Execution{ExecutionID: "e-" + submit.RequestID, RequestID: submit.RequestID, Status: contract.StatusSucceeded}
}

// newRunningExecutor is an executor that answers as runs says.
func newRunningExecutor(t testing.TB) (*executor, *runs) {
	r := &runs{ran: map[string]int{}}
	return newExecutor(t, r.respond), r
}
