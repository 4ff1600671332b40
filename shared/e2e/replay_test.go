package e2e

import (
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// The operator sends everything again that it has seen, to the same executor.
func TestAllRequestsOfASessionSentAgainDoNothing(t *testing.T) {
	u := newTunnel(t, "30s")
	asked := quick(t, u.host, "runs.append(input())")
	want(t, call(t, u.host, "provide_input", map[string]any{"execution_id": asked.String("execution_id"), "text": "1"}), map[string]any{"success": true})
	want(t, call(t, u.host, "get_execution", map[string]any{"execution_id": asked.String("execution_id"), "wait_seconds": 20}), map[string]any{"status": "succeeded"})
	want(t, call(t, u.host, "cleanup_colab", nil), map[string]any{"success": true})
	want(t, call(t, u.host, "restart_kernel", nil), map[string]any{"success": true})
	want(t, quick(t, u.host, "runs = ['after the restart']"), map[string]any{"success": true})

	past := u.all()
	seen := map[string]bool{}
	for _, e := range past {
		seen[e.request.method+" "+e.request.path[strings.LastIndex(e.request.path, "/"):]] = true
		if e.request.path == contract.PathHealth && e.request.header.Get("Signature") == "" {
			continue
		}
		answer := u.forward(e.request)
		if answer.status != http.StatusUnauthorized || len(answer.body) > 600 {
			t.Errorf("%s %s again: status %d, %d bytes", e.request.method, e.request.path, answer.status, len(answer.body))
		}
	}
	for _, kind := range []string{"POST /executions", "POST /input", "POST /cleanup", "POST /restart"} {
		if !seen[kind] {
			t.Errorf("the session had no %s: %v", kind, seen)
		}
	}
	if ran := u.ran(); ran != "['after the restart']" {
		t.Errorf("the kernel has %s", ran)
	}
}
