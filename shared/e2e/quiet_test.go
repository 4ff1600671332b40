package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// mostRequests is the most requests that a silent run of ten minutes may take.
const mostRequests = 15

// TestSilentRunCostsOneRequestAWait counts the requests of the real programs at the edge.
// Under LONG it takes ten minutes; TestSilentTenMinutesCostFewRequests simulates them with
// a fake executor and a fake clock.
func TestSilentRunCostsOneRequestAWait(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	length := 6 * time.Second
	if longSuites() {
		length = 10 * time.Minute
	}
	edge := ngroktest.Start(t)
	e := viaEdge(t, edge, stacks.Old(t))
	h := startHost(t, e.Ready.URL, harness.HostConfig{Env: []string{"RELAY_HOLD=45s"}})
	wait := advisedWait(t, h)
	if n := edge.Requests(); n != 0 {
		t.Errorf("starting a relay and listing its tools took %d requests", n)
	}
	quick(t, h, "pass") // a relay's first run asks for the instance
	before := edge.Requests()
	a := call(t, h, "run_code_long", map[string]any{"code": silent(length), "timeout_seconds": 2 * length.Seconds()})
	waits := 1
	for a.String("status") == "running" {
		a = call(t, h, "get_execution", map[string]any{"execution_id": a.String("execution_id"), "offset": a.Int("next_offset"), "wait_seconds": wait})
		waits++
	}
	want(t, a, map[string]any{"status": "succeeded", "stdout": ""})
	asked := edge.Requests() - before
	t.Logf("%s of silence: %d calls, %d requests", length, waits, asked)
	if asked > waits {
		t.Errorf("%d requests for %d calls", asked, waits)
	}
	if longSuites() && asked > mostRequests {
		t.Errorf("%d requests for ten minutes, want at most %d", asked, mostRequests)
	}
}

// silent prints nothing, because output would end a wait, and has no value.
func silent(d time.Duration) string {
	return fmt.Sprintf("import time\ntime.sleep(%g)", d.Seconds())
}

// advisedWait returns the wait_seconds that the description of run_code_long recommends.
func advisedWait(t *testing.T, h *harness.Host) float64 {
	t.Helper()
	tools, err := h.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		found := regexp.MustCompile(`wait_seconds=(\d+)`).FindStringSubmatch(tool.Description)
		if tool.Name != "run_code_long" || found == nil {
			continue
		}
		wait, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	t.Fatal("run_code_long's description does not say how long to wait")
	return 0
}
