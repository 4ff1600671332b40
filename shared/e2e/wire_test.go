package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

func TestHealthHasTheOldBridgesFieldsAndLeaksNothing(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	answer, err := http.Get(e.Ready.LocalURL + "/health")
	must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	var fields map[string]any
	must(t, json.Unmarshal(body, &fields))
	for _, name := range []string{"status", "uptime_minutes", "memory_available_gb", "memory_used_pct", "version", "protocol"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if len(fields) != 6 {
		t.Errorf("health has %v", fields)
	}
}

// The executor runs the code, but its answer is lost.
func TestLostAnswerDoesNotRunTheCodeTwice(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := borrowExecutor(t, s)
		m := newMiddleman(t, e.Ready.LocalURL)
		h := startHost(t, m.URL, harness.HostConfig{})
		quick(t, h, "n = 0")
		m.tamper(isSubmit, func(m *middleman, request message) message {
			answer := m.forward(request)
			if m.times() == 1 {
				panic(http.ErrAbortHandler)
			}
			return answer
		})
		want(t, quick(t, h, "n += 1\nprint('ran', n)"), map[string]any{"success": true, "stdout": "ran 1\n"})
		if n := m.times(); n != 2 {
			t.Errorf("%d submits were sent", n)
		}
		want(t, quick(t, h, "n"), map[string]any{"result": "1"})
	})
}
