package e2e

import (
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

func TestARequestSentTwiceRunsOnce(t *testing.T) {
	u := newTunnel(t, "30s")
	for i, which := range []string{"first", "second"} {
		first := true
		a := u.during("the "+which+" answer", isSubmit, func(m *middleman, request message) message {
			answers := []message{m.forward(request), m.forward(request)}
			if !first {
				return answers[0]
			}
			first = false
			return answers[i]
		}, "run_code_quick", map[string]any{"code": "runs.append(1)\n'once'"})
		want(t, a, map[string]any{"success": true, "result": "'once'"})
		if ran := u.ran(); ran != "[1]" {
			t.Errorf("the %s answer came back: the code ran %s", which, ran)
		}
	}
}

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
