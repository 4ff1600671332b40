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
)

// mostRequests is what a silent run of ten minutes may cost of a tunnel's quota.
const mostRequests = 15

// TestSilentRunCostsOneRequestAWait counts at the edge what the real programs ask. In
// full it takes ten minutes; TestSilentTenMinutesCostFewRequests has them in no time,
// with a stand-in for the executor.
func TestSilentRunCostsOneRequestAWait(t *testing.T) {
	t.Parallel()
	length := 6 * time.Second
	if soak() {
		length = 10 * time.Minute
	}
	edge := ngroktest.Start(t)
	e := viaEdge(t, edge, stacks.Old(t))
	h := startHost(t, e.Ready.URL, harness.HostConfig{Env: []string{"RELAY_HOLD=45s"}})
	wait := advisedWait(t, h)
	if n := edge.Requests(); n != 0 {
		t.Errorf("a relay that was started and asked for its tools made %d requests", n)
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
	if soak() && asked > mostRequests {
		t.Errorf("%d requests for ten minutes, want at most %d", asked, mostRequests)
	}
}

// silent gives no output, whose coming would end a wait, and no value.
func silent(d time.Duration) string {
	return fmt.Sprintf("import time\ntime.sleep(%g)", d.Seconds())
}

// advisedWait is the wait_seconds that run_code_long's description tells agents to use.
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
