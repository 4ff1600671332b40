package op

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// Two calls with the same code at once are two runs. So are those of other runtimes, codes and
// deadlines.
func TestUnansweredSubmitsAreNotMixedUp(t *testing.T) {
	var u recent[unansweredSubmit, submitted]
	all := []unansweredSubmit{{runtime: "a"}, {runtime: "a"}, {runtime: "b"}, {runtime: "a", code: [32]byte{1}}, {runtime: "a", timeout: 1}}
	for i, s := range all {
		u.add(s, submitted{requestID: strconv.Itoa(i)})
	}
	for i, s := range all {
		if got, want := u.take(s).requestID, strconv.Itoa(i); got != want {
			t.Errorf("%+v has %q, want %q", s, got, want)
		}
	}
}

// Code that may have run on a VM is not sent to the one that replaced it, unless it is asked for anew.
func TestAnUnansweredSubmitIsNotRepeatedOnAnotherVM(t *testing.T) {
	onOwnClock(t, 2*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		ran, lost := map[string]bool{}, true
		f.on("POST", contract.PathExecutions, func(_ *http.Request, body []byte) (int, any) {
			var s contract.Submit
			_ = json.Unmarshal(body, &s)
			ran[s.RequestID] = true
			if lost {
				panic(http.ErrAbortHandler)
			}
			return http.StatusOK, contract.Execution{ExecutionID: "e", Status: contract.StatusSucceeded, End: true}
		})
		for _, want := range []struct {
			code string
			runs int
		}{{"unreachable", 1}, {"new_instance", 1}, {"", 2}} {
			e := h.call("run_code_quick", map[string]any{"code": "post()"}).outcome(t).Error
			if e == nil {
				e = &Problem{}
			}
			if e.Code != want.code || len(ran) != want.runs {
				t.Errorf("the answer is %+v after %d runs, want %+v", e, len(ran), want)
			}
			lost = false
			f.replace("instance-2")
		}
	})
}
