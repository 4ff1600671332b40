package op

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// stateOn makes the fake a VM whose kernel reports and whose file can be fetched.
func stateOn(f *fakeExecutor) *fakeRun {
	data := []byte("colab-relay kernel state 1\n and so on")
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	f.on("GET", contract.PathStat, func(*http.Request, []byte) (int, any) {
		return http.StatusOK, contract.FileStat{
			File: contract.File{Name: "data.state", Path: "/tmp/colab-relay-state-x/data.state", SizeBytes: int64(len(data))}, ETag: "e", SHA256: digest,
		}
	})
	f.on("GET", contract.PathContent, func(*http.Request, []byte) (int, any) { return http.StatusOK, data })
	r := f.run("s1")
	r.event(contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{
		"application/vnd.colab-relay.state+json": json.RawMessage(fmt.Sprintf(`{"path":"/tmp/colab-relay-state-x/data.state","manifest":{"python":"3.12.1","pickler":"dill","variable_count":2,
			"variables":[{"name":"x","type":"int","bytes":5},{"name":"y","type":"list","bytes":9}],"modules":[{"name":"np","module":"numpy"}],
			"skipped":[{"name":"gen","reason":"it holds a generator"}],"skipped_count":1,"bytes":%d,"sha256":%q}}`, len(data), digest)),
	}})
	return r
}

type stateAnswer struct {
	Status      string
	Path        string
	CanContinue bool   `json:"can_continue"`
	NextCommand string `json:"next_command"`
	Count       int    `json:"variable_count"`
	Skipped     []struct{ Name, Reason string }
}

func (r result) state(t *testing.T) stateAnswer { return decode[stateAnswer](t, r.Structured) }

func TestSaveThatOutlivesItsCallIsSavedByTheSameCall(t *testing.T) {
	onOwnClock(t, 2*time.Second, func(t *testing.T, h *host, f *fakeExecutor) {
		run := stateOn(f)
		run.set(func(e *contract.Execution) { e.Status = contract.StatusQueued })
		first := h.call("save_kernel_state", map[string]any{"name": "my \"state\"", "keep_versions": 5})
		a := first.state(t)
		want := `save_kernel_state(name="my \"state\"", keep_versions=5)`
		sameFields(t, stateAnswer{Status: "saving", CanContinue: true, NextCommand: want}, a, "Status", "CanContinue", "NextCommand")
		run.end(contract.StatusSucceeded)
		second := h.call("save_kernel_state", map[string]any{"name": "my \"state\"", "keep_versions": 5})
		a = second.state(t)
		sameFields(t, stateAnswer{Status: "saved", Count: 2}, a, "Status", "CanContinue", "NextCommand", "Count")
		if a.Path == "" || len(a.Skipped) != 1 {
			t.Errorf("%s", second.Structured)
		}
		if s := run.submitted()[0]; !s.Unstored || s.RequestID == "" {
			t.Errorf("submitted %+v", s)
		}
	})
}

func TestFailedSaveSaysThatEarlierVersionsAreIntact(t *testing.T) {
	h, f := serveFake(t)
	run := stateOn(f)
	run.end(contract.StatusKernelDied)
	r := h.call("save_kernel_state", map[string]any{"name": "s"})
	o := r.outcome(t)
	if o.Error == nil || o.Error.Code != "kernel_died" || !strings.Contains(o.Error.Hint, "intact") || r.state(t).Status != "failed" {
		t.Errorf("%s", r.Structured)
	}
}
