package tools

import (
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// An error names the item that it is about and the tool that helps.
func TestAnErrorNamesTheItemAndTheTool(t *testing.T) {
	h, f := serveFake(t, 10*time.Second)
	refuse := func(method, path string, code contract.Code, message string) {
		f.answer(method, path, &contract.Error{Code: code, Message: message})
	}
	for _, each := range []struct {
		tool    string
		args    map[string]any
		method  string
		path    string
		code    contract.Code
		refusal string
		want    []string
	}{
		{"inspect_variable", map[string]any{"name": "nope"}, "GET", contract.PathInspect, contract.CodeNotFound, "no such variable", []string{`no such variable "nope"`, "list_colab_variables shows those there are"}},
		{"get_execution", map[string]any{"execution_id": "e9"}, "GET", contract.PathExecutions + "/e9", contract.CodeNotFound, "no such execution", []string{`no such run "e9"`, "list_executions shows the runs"}},
		{"interrupt_execution", map[string]any{"execution_id": "e9"}, "POST", contract.PathExecutions + "/e9/interrupt", contract.CodeConflict, "the execution has finished", []string{`run "e9": the VM says: “the execution has finished”`, "get_execution shows"}},
		{"provide_input", map[string]any{"execution_id": "e9", "text": "x"}, "POST", contract.PathExecutions + "/e9/input", contract.CodeConflict, "the execution is not waiting for input", []string{`run "e9": the VM says: “the execution is not waiting`, "get_execution shows"}},
	} {
		refuse(each.method, each.path, each.code, each.refusal)
		text := h.call(each.tool, each.args).Content[0].Text
		for _, want := range each.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in %q", each.tool, want, text)
			}
		}
	}
}

func TestWaitingSaysForWhatAndWhere(t *testing.T) {
	other := contract.Behind{ExecutionID: "e1", Status: contract.StatusRunning}
	for _, test := range []struct {
		exec contract.Execution
		want string
	}{
		{contract.Execution{Status: contract.StatusQueued, QueuePosition: 2, Behind: &other}, `waiting for run e1 on runtime "gpu"`},
		{contract.Execution{Status: contract.StatusQueued, QueuePosition: 2}, `waiting for 2 other runs on runtime "gpu"`},
		{contract.Execution{Status: contract.StatusQueued}, `waiting for the kernel to be ready on runtime "gpu"`},
		{contract.Execution{Status: contract.StatusRunning}, `running on runtime "gpu", no output yet`},
	} {
		if got := waitingFor(test.exec, "gpu"); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	onOwnClock(t, time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		f.run("e2").set(func(e *contract.Execution) {
			e.Status, e.QueuePosition, e.Behind = contract.StatusQueued, 1, &other
		})
		r := h.call("run_code_quick", map[string]any{"code": "x"})
		for _, want := range []string{`Waiting for run e1 on runtime "test"; do not submit the code again.`, `Next step: get_execution(execution_id="e2", offset=0, wait_seconds=1)`} {
			if !strings.Contains(r.Content[0].Text, want) {
				t.Errorf("%q is not in %q", want, r.Content[0].Text)
			}
		}
	})
}
