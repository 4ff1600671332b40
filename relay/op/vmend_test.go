package op

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// endingIn makes the fake's run e1 tell that many minutes, nil for nothing known.
func endingIn(f *fakeExecutor, left *float64) {
	now := time.Now()
	f.answer("GET", contract.PathExecutions+"/e1", contract.Execution{
		ExecutionID: "e1", Status: contract.StatusSucceeded, StartedAt: &now, FinishedAt: &now, End: true, SessionMinutesLeft: left,
	})
}

func TestTheVMsEndIsReportedWhenItIsNear(t *testing.T) {
	for _, c := range []struct {
		left *float64
		want string // in the first warning; empty for none
		next bool   // also in the next answer
	}{
		{nil, "", false},
		{new(300.0), "", false},
		{new(30.0), "", false},
		{new(29.4), "about 30 minutes: call save_kernel_state", false},
		{new(0.2), "about 1 minute:", false},
		{new(0.0), "executor is shutting down", true},
		{new(-3.0), "executor is shutting down", true},
	} {
		h, f := serveFake(t)
		endingIn(f, c.left)
		args := map[string]any{"execution_id": "e1"}
		first, second := h.call("get_execution", args).outcome(t).Warning, h.call("get_execution", args).outcome(t).Warning
		if (c.want == "") != (first == "") || !strings.Contains(first, c.want) {
			t.Errorf("%v minutes left: warned %q, want %q", c.left, first, c.want)
		}
		if c.next != (second != "") {
			t.Errorf("%v minutes left: the second answer warns %q", c.left, second)
		}
	}
}

func TestCheckAndProbeTellWhatIsKnownOfTheEnd(t *testing.T) {
	h, f := serveFake(t)
	check := func() (Connection, string) {
		t.Helper()
		r := h.call("check_colab_connection", map[string]any{})
		return decode[Connection](t, r.Structured), r.outcome(t).Warning
	}
	if got, warning := check(); got.SessionLeft != nil || warning != "" {
		t.Errorf("before anything is known: %+v %q", got, warning)
	}
	f.answer("GET", contract.PathProbe, contract.Probe{Limits: contract.Limits{SessionMinutesLeft: new(0.0)}})
	if w := h.call("probe_colab_environment", map[string]any{}).outcome(t).Warning; !strings.Contains(w, "about 1 minute:") {
		t.Errorf("a VM past its published limit: %q", w)
	}
	if got, warning := check(); got.SessionLeft == nil || *got.SessionLeft != 0 || warning != "" {
		t.Errorf("after the probe: %+v %q", got, warning)
	}
	endingIn(f, new(90.0))
	h.call("get_execution", map[string]any{"execution_id": "e1"})
	if got, _ := check(); got.SessionLeft == nil || *got.SessionLeft < 60 || *got.SessionLeft > 90 {
		t.Errorf("after a run: %+v", got)
	}
	f.replace("instance-2")
	f.on("GET", contract.PathKernel, func(*http.Request, []byte) (int, any) { return http.StatusOK, contract.Kernel{KernelID: "kernel-2"} })
	if got, _ := check(); got.SessionLeft != nil {
		t.Errorf("a new VM has the old one's end: %+v", *got.SessionLeft)
	}
}
