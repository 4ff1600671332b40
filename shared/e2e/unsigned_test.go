package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// strangersAnswers are what may come in place of an executor's answer.
var strangersAnswers = map[string]message{
	"login page":          {status: 200, header: http.Header{"Content-Type": {"text/html"}}, body: []byte("<html>log in</html>")},
	"unauthorized":        {status: 401, header: http.Header{"Content-Type": {"application/json"}}, body: []byte(`{"error":{"code":"unauthorized"}}`)},
	"executor's rate":     {status: 429, header: http.Header{"Content-Type": {"application/json"}}, body: []byte(`{"error":{"code":"rate_limited"}}`)},
	"service unavailable": {status: 503, header: http.Header{}},
}

// submitter is a tool that submits code, and what the code leaves behind.
type submitter struct {
	args map[string]any
	ran  string // the file's content after one run; empty if nothing is counted
}

// submitters are the tools that submit code. Each code adds a line to the file, whose name is that
// of the case.
func submitters(dir, file string) map[string]submitter {
	code := fmt.Sprintf("with open(%q, 'a') as f: f.write('x')", file)
	notebook := filepath.Join(dir, filepath.Base(file)+".ipynb")
	cells := fmt.Sprintf(`{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[{"id":"a","cell_type":"code","metadata":{},"execution_count":null,"outputs":[],"source":%q}]}`, code)
	if err := os.WriteFile(notebook, []byte(cells), 0o600); err != nil {
		panic(err)
	}
	name := filepath.Base(file)
	return map[string]submitter{
		"run_code_quick":        {map[string]any{"code": code}, "x"},
		"run_code_long":         {map[string]any{"code": code}, "x"},
		"run_chunked_operation": {map[string]any{"setup_code": "", "loop_code": code, "n_iterations": 3, "batch_size": 3, "checkpoint_name": name}, "xxx"},
		"run_notebook":          {map[string]any{"notebook_path": notebook}, "x"},
		"run_code_cell":         {map[string]any{"notebook_path": notebook, "cellId": "a"}, "x"},
		"save_kernel_state":     {map[string]any{"name": name}, ""},
		"preview_dataframe":     {map[string]any{"name": "no_frame"}, ""},
	}
}

// The executor accepts each submit and runs it, and the relay gets an answer of somebody else. It
// says that the code may have been submitted, and the same call again runs nothing twice.
func TestCodeWhoseSubmitAStrangerAnswersRunsOnce(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	e := borrowExecutor(t, stacks.Old(t))
	dir := t.TempDir()
	tools := submitters(dir, filepath.Join(dir, "none"))
	for tool := range tools {
		t.Run(tool, func(t *testing.T) {
			between := newMiddleman(t, e.Ready.LocalURL)
			h := startHost(t, between.URL, harness.HostConfig{Env: []string{"RELAY_TOOLSETS=all", "RELAY_NOTEBOOK_DIRS=" + dir, "CHECKPOINT_DIR=" + t.TempDir()}})
			number := 0
			for name, answer := range strangersAnswers {
				number++
				file := filepath.Join(dir, fmt.Sprintf("%s-%d", tool, number))
				s := submitters(dir, file)[tool]
				answerFirstSubmit(between, answer)
				got := call(t, h, tool, s.args)
				if strings.Contains(got.Text, "may have been submitted") { // others were tried again, under the same request_id
					got = call(t, h, tool, s.args)
				} else if between.times() < 2 {
					t.Errorf("%s: %s", name, got.Text)
				}
				if strings.Contains(got.Text, "may have been submitted") {
					t.Errorf("%s: the second call: %s", name, got.Text)
				}
				if ran, _ := os.ReadFile(file); string(ran) != s.ran {
					t.Errorf("%s: ran %q, want %q; the second call: %s", name, ran, s.ran, got.Text)
				}
			}
		})
	}
}

// answerFirstSubmit gives the relay this answer to its next submit, which the executor gets.
func answerFirstSubmit(between *middleman, answer message) {
	first := true
	between.tamper(func(r message) bool {
		return r.method == http.MethodPost && (r.path == contract.PathExecutions || r.path == contract.PathJobs)
	},
		func(m *middleman, request message) message {
			got := m.forward(request)
			if first {
				first = false
				return answer.clone()
			}
			return got
		})
}
