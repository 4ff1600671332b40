package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// The executor answers a request that is repeated with a refusal, which is sealed for the same
// request. Its body is not the body of the first answer.
func TestTheRefusalOfARepeatIsNoBodyOfTheAnswer(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := newTunnel(t, "30s")
	want(t, quick(t, u.host, "kept = 1\nopen('kept.txt', 'w').write('x' * 1000)\nruns = []"), map[string]any{"success": true})
	local := filepath.Join(u.dir, "kept.txt")
	if err := os.WriteFile(local, []byte("another file"), 0o600); err != nil {
		t.Fatal(err)
	}
	mixed := func(m *middleman, request message) message {
		answer, repeat := m.forward(request), m.forward(request)
		if repeat.status != http.StatusUnauthorized {
			t.Errorf("%s: a repeat: status %d", request.path, repeat.status)
		}
		answer.body = repeat.body
		return answer
	}
	for _, c := range []struct {
		tool string
		args map[string]any
		path string
	}{
		{"run_code_quick", map[string]any{"code": "runs.append(1)"}, contract.PathExecutions},
		{"list_executions", nil, contract.PathExecutions},
		{"list_colab_variables", nil, contract.PathVariables},
		{"list_colab_files", map[string]any{"path": "."}, contract.PathFiles},
		{"upload_to_colab", map[string]any{"local_path": local, "remote_path": "kept.txt"}, contract.PathStat},
		{"download_from_colab", map[string]any{"remote_path": "kept.txt"}, contract.PathContent},
	} {
		a := u.during(c.tool, func(m message) bool { return strings.HasPrefix(m.path, c.path) }, mixed, c.tool, c.args)
		if !a.IsError || a.Error() != "bad_answer" {
			t.Errorf("%s: the answer: %s; want the error bad_answer", c.tool, a.Text)
		}
	}
}
