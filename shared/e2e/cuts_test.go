package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// The connection of a submit is cut at many places, in the request and in the answer. The relay
// answers each call, and the code of each runs once.
func TestASubmitThatIsCutAnywhereRunsOnce(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	w, err := harness.NewWire(strings.TrimPrefix(e.Ready.LocalURL, "http://"))
	must(t, err)
	t.Cleanup(w.Close)
	h := startHost(t, "http://"+w.Addr, harness.HostConfig{})
	const code = "ran.append(len(ran))\nlen(ran)"
	want(t, quick(t, h, "ran = []"), map[string]any{"success": true})
	w.CutAt()
	want(t, quick(t, h, code), map[string]any{"result": "1"})
	up, down, _ := w.Passed()
	points := int64(9)
	if longSuites() {
		points = 200
	}
	ran, inRequest, inAnswer := 1, 0, 0
	for point := range points {
		at := 1 + (up+down-2)*point/(points-1) // from the first byte to the last but one
		w.CutAt(at)
		ran++
		a := quick(t, h, code)
		if a.Error() != "" || a.String("result") != fmt.Sprint(ran) {
			t.Fatalf("cut at byte %d of %d and %d, run %d: %s", at, up, down, ran, a.Text)
		}
		if _, _, cuts := w.Passed(); cuts != 1 {
			t.Errorf("at byte %d: %d cuts", at, cuts)
		}
		if at < up {
			inRequest++
		} else {
			inAnswer++
		}
	}
	t.Logf("%d cuts in the request, %d in the answer", inRequest, inAnswer)
	if inRequest < 3 || inAnswer < 3 {
		t.Errorf("%d cuts in the request, %d in the answer", inRequest, inAnswer)
	}
}

// The tunnel is down for longer than several calls last, once refused and once silent. The calls
// say so, the run goes on, and afterwards all of its output is there. A run that was asked for
// meanwhile ran once at most.
func TestATunnelThatIsDownForManyCallsLosesNothing(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	down := 4 * time.Second
	if longSuites() {
		down = 3 * time.Minute
	}
	for name, fault := range map[string]struct{ begin, end func(*lab) }{
		"refused": {func(l *lab) { l.network.Stop() }, (*lab).plug},
		"silent": {
			func(l *lab) { must(l.t, silence(l, "upstream")); must(l.t, silence(l, "downstream")) },
			func(l *lab) { l.network.Toxics.ResetToxics(l.t.Context()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "1s")
			a := call(t, l.host, "run_code_long", map[string]any{"code": untilStopped})
			want(t, a, map[string]any{"success": true, "status": "running"})
			id, next := a.String("execution_id"), a.Int("next_offset")
			fault.begin(l)
			calls := 0
			for began := time.Now(); time.Since(began) < down || calls < 2; calls++ {
				failed := callOnce(t, l.host, "get_execution", map[string]any{"execution_id": id, "offset": next, "wait_seconds": 1})
				if !failed.IsError || failed.Error() == "" || !strings.Contains(failed.Text, "Next") {
					t.Errorf("a call without a tunnel: %s", failed.Text)
				}
			}
			lost := callOnce(t, l.host, "run_code_quick", map[string]any{"code": "open('meanwhile', 'a').write('x')"})
			if !lost.IsError {
				t.Errorf("a run without a tunnel: %s", lost.Text)
			}
			fault.end(l)
			stop(t, l.executor)
			rest, last := follow(t, l.host, id, next)
			want(t, last, map[string]any{"status": "succeeded"})
			if all := a.String("stdout") + rest; all != lines(strings.Count(all, "\n")) || len(rest) < 20 {
				t.Errorf("the output is %q", all)
			}
			want(t, quick(t, l.host, "import os; not os.path.exists('meanwhile') or os.path.getsize('meanwhile') == 1"), map[string]any{"result": "True"})
		})
	}
}

// silence makes a direction of the tunnel swallow everything, and keeps connections open.
func silence(l *lab, stream string) error {
	_, err := l.network.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name": %q, "type": "timeout", "stream": %[1]q, "attributes": {"timeout": 0}}`, stream)))
	return err
}
