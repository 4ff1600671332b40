package tools

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// listed is a run as a VM lists it, some minutes before noon.
func listed(id string, minutes int, status contract.Status, code string) contract.Execution {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(-time.Duration(minutes) * time.Minute)
	e := contract.Execution{ExecutionID: id, RequestID: "R" + id, Status: status, CreatedAt: at, CodePreview: code}
	if status != contract.StatusQueued {
		e.StartedAt = &at
	}
	if status.Finished() {
		end := at.Add(1500 * time.Millisecond)
		e.FinishedAt = &end
	}
	return e
}

// lists makes the fake list these runs.
func (f *fakeExecutor) lists(runs ...contract.Execution) {
	f.answer("GET", contract.PathExecutions, contract.ExecutionList{Executions: runs})
}

// A run is found by its request_id, as the answer says that lost the run.
func TestALostRunIsFoundInTheList(t *testing.T) {
	onOwnClock(t, 2*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		var sent atomic.Value // the last submit
		f.on("POST", contract.PathExecutions, func(_ *http.Request, body []byte) (int, any) {
			sent.Store(string(body))
			panic(http.ErrAbortHandler)
		})
		text := h.call("run_code_long", map[string]any{"code": "x"}).Content[0].Text
		_, id, ok := strings.Cut(text, "under request_id ")
		if id, _, _ = strings.Cut(id, ":"); !ok || !strings.Contains(sent.Load().(string), id) {
			t.Fatal(text)
		}
		e := listed("e1", 0, contract.StatusRunning, "x")
		e.RequestID = id
		f.lists(e)
		if list := h.call("list_executions", nil).Content[0].Text; !strings.Contains(list, "  "+id+"  x\n") {
			t.Error(list)
		}
	})
}

func TestTheFirstCharactersOfAnIDAreEnough(t *testing.T) {
	const one, two, third = "1edc033a-e23e-4e8a-9d1c-000000000001", "7eb4d1be-e23e-4e8a-9d1c-000000000002", "7eb4d1be-e23e-4e8a-9d1c-000000000003"
	h, f := serveFake(t)
	f.run(one).end(contract.StatusSucceeded)
	f.answer("POST", contract.PathExecutions+"/"+one+"/interrupt", contract.Execution{ExecutionID: one, Status: contract.StatusInterrupted})
	f.answer("POST", contract.PathExecutions+"/"+one+"/input", contract.Execution{ExecutionID: one, Status: contract.StatusRunning})
	f.lists(listed(one, 0, contract.StatusSucceeded, "x"), listed(two, 1, contract.StatusFailed, "y\nz"), listed(third, 2, contract.StatusLost, "x"))
	for id, want := range map[string]string{one: one, "1": one, "7eb4": "several runs begin with that id", "8": `no such run "8"`} {
		for _, tool := range []string{"get_execution", "interrupt_execution", "provide_input"} {
			args := map[string]any{"execution_id": id}
			if tool == "provide_input" {
				args["text"] = "x"
			}
			if text := h.call(tool, args).Content[0].Text; !strings.Contains(text, want) {
				t.Errorf("%s of %s: %q is not in %q", tool, id, want, text)
			}
		}
	}
}
