package op

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// reports makes the next run of the fake end with a report of the kernel's.
func reports(f *fakeExecutor, mime, report string) *fakeRun {
	run := f.run("e1")
	run.event(contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{mime: json.RawMessage(report)}})
	run.end(contract.StatusSucceeded)
	return run
}

func TestAFrameIsAnswered(t *testing.T) {
	h, f := serveFake(t)
	run := reports(f, frameMIME, `{"columns":[{"name":"a\u001b[31m","dtype":"int64"},{"name":"b","dtype":"str"}],"column_count":3,"rows":[[1,"x\ny"],[null,true]],"row_count":7,"truncated":true,"engine":"pandas"}`)
	r := h.call("preview_dataframe", map[string]any{"name": "df", "offset": 5})
	got := decode[Frame](t, r.Structured)
	if got.Columns[0].Name != "a" || len(got.Rows) != 2 || got.Rows[0][0] != 1.0 || got.Rows[1][0] != nil || *got.RowCount != 7 {
		t.Errorf("%s", r.Structured)
	}
	for _, line := range []string{"Rows 5 to 6 of 7, 3 columns (pandas)\n", "a (int64) | b (str)\n", "1 | \"x\\ny\"\n", "null | true\n", "Not shown: 1 further column."} {
		if !strings.Contains(r.Content[0].Text, line) {
			t.Errorf("no %q in:\n%s", line, r.Content[0].Text)
		}
	}
	s := run.submitted()[0]
	if !s.Unstored || !s.BehindInput || s.TimeoutSeconds != previewLimit.Seconds() {
		t.Errorf("%+v", s)
	}
}

// TestUnsoundFramesAreRefused: code in the kernel may display what it wants.
func TestUnsoundFramesAreRefused(t *testing.T) {
	h, f := serveFake(t)
	rows := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("[1],", n), ",") + "]" }
	for _, report := range []string{
		`7`, `{"columns":7}`, `{"columns":[{"name":"a"}],"rows":[[1,2]]}`, `{"columns":[{"name":"a"}],"rows":[[{}]]}`, `{"rows":` + rows(201) + `}`,
	} {
		reports(f, frameMIME, report)
		if o := h.call("preview_dataframe", map[string]any{"name": "df"}).outcome(t); o.Error == nil || o.Error.Code != codeInternal {
			t.Errorf("%.60s: %+v", report, o)
		}
	}
	reports(f, frameMIME, `{"error":{"code":"own_code","message":"a\u001b[0mb","hint":"c"}}`)
	if o := h.call("preview_dataframe", map[string]any{"name": "df"}).outcome(t); o.Error == nil || o.Error.Code != "failed" || o.Error.Message != "the VM says: “ab”" {
		t.Errorf("%+v", o)
	}
}

func TestTheKernelGetsThePackageIfItLacksIt(t *testing.T) {
	h, f := serveFake(t)
	missing := `{"package":"` + kernelpy.Package() + `"}`
	run := reports(f, missingMIME, missing)
	if o := h.call("query_dataframes", map[string]any{"sql": "SELECT 1"}).outcome(t); o.Error == nil || o.Error.Code != codeInternal {
		t.Errorf("%+v", o)
	}
	if s := run.submitted(); len(s) != 2 || len(s[0].Code) >= len(s[1].Code) {
		t.Errorf("%d submits", len(s))
	}
}

// TestACallThatEndsFirstEndsItsRun: a run whose answer nobody reads must not stay in the queue.
func TestACallThatEndsFirstEndsItsRun(t *testing.T) {
	for status, code := range map[contract.Status]string{contract.StatusQueued: "kernel_busy", contract.StatusRunning: "timed_out"} {
		onOwnClock(t, 4*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
			run := f.run("e1")
			run.set(func(e *contract.Execution) {
				e.Status = status
				if status == contract.StatusQueued {
					e.QueuePosition, e.Behind = 1, &contract.Behind{ExecutionID: "e0", Status: contract.StatusRunning}
				}
			})
			f.on("POST", contract.PathExecutions+"/e1/interrupt", func(*http.Request, []byte) (int, any) {
				return http.StatusOK, contract.Execution{ExecutionID: "e1", Status: contract.StatusCancelled}
			})
			o := h.call("preview_dataframe", map[string]any{"name": "df"}).outcome(t)
			if o.Error == nil || o.Error.Code != code || status == contract.StatusQueued && !strings.Contains(o.Error.Message, "run e0") {
				t.Errorf("%s: %+v", status, o)
			}
			if n := f.count("POST", contract.PathExecutions+"/e1/interrupt"); n != 1 {
				t.Errorf("%s: %d interrupts", status, n)
			}
		})
	}
}

const missingMIME = contract.OwnMIME + "missing+json"
