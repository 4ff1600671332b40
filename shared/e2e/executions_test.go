package e2e

import (
	"crypto/rand"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// TestAListShowsWhatTheCallerRan: the relay's own code is left out, and the beginning of an id is
// enough to name a run.
func TestAListShowsWhatTheCallerRan(t *testing.T) {
	h := allTools(t, stacks.Old(t), "20s")
	a := quick(t, h, "x = 7; print('seven')")
	want(t, call(t, h, "save_kernel_state", map[string]any{"name": "s"}), map[string]any{"success": true})
	call(t, h, "inspect_variable", map[string]any{"name": "x"})
	call(t, h, "preview_dataframe", map[string]any{"name": "x"})
	chunked := map[string]any{"setup_code": "", "loop_code": "result = i", "n_iterations": 3, "checkpoint_name": "loop"}
	want(t, call(t, h, "run_chunked_operation", chunked), map[string]any{"status": "finished"})

	list := call(t, h, "list_executions", nil).Text
	for _, line := range []string{"--- runs, newest first [", "  run_chunked_operation \"loop\", round\n", "  x = 7; print('seven')\n", "of the relay's own code or earlier rounds of chunked runs; include_internal=true lists them"} {
		if !strings.Contains(list, line) {
			t.Errorf("%q is not in\n%s", line, list)
		}
	}
	all := call(t, h, "list_executions", map[string]any{"include_internal": true}).Text
	if !strings.Contains(all, "(the relay's own) save state") || strings.Contains(list, "(the relay's own)") {
		t.Errorf("%s\n%s", all, list)
	}
	id := a.String("execution_id")
	if text := call(t, h, "get_execution", map[string]any{"execution_id": id[:8]}).Text; !strings.Contains(text, "execution_id "+id) || !strings.Contains(text, "seven") {
		t.Error(text)
	}
	wantError(t, call(t, h, "interrupt_execution", map[string]any{"execution_id": "zzzz"}), "not_found")

	text := call(t, h, "get_checkpoint", map[string]any{"checkpoint_name": "loop"}).Text
	for _, line := range []string{"is a chunked run on runtime", ": finished.\n3 of 3 iterations done (100%)", "--- values of result: 3 [", "]\n0: 0\n1: 1\n2: 2\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
}

// A step of a job is listed with the name of its source, so that a person and an agent find a cell
// again.
func TestAStepIsListedWithTheNameOfItsSource(t *testing.T) {
	e, h := pair(t, stacks.Old(t))
	c := relayClient(t, e)
	id := "named-" + rand.Text()
	_, err := c.SubmitJobTo(within.Context(t), c.InstanceID(), contract.JobSubmit{JobID: id, Steps: []contract.JobStep{{StepID: "1", Code: "6 * 7", SourceName: "a.ipynb cell 3"}}})
	must(t, err)
	must(t, harness.Poll(within.Context(t), func() (bool, error) {
		x, err := c.Job(within.Context(t), id, 0, 0)
		return x.State == contract.JobFinished, err
	}))
	const named = "[a.ipynb cell 3] 6 * 7"
	if a := call(t, h, "list_executions", nil); !strings.Contains(a.Text, named) {
		t.Errorf("list_executions says %q", a.Text)
	}
}
