package e2e

import (
	"fmt"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

// The connection of a submit is cut at many places, in the request and in the answer. The relay
// answers each call, and the code of each runs once.
func TestASubmitThatIsCutAnywhereRunsOnce(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	w := newWire(t, e)
	h := startHost(t, "http://"+w.Addr, harness.HostConfig{})
	const code = "ran.append(len(ran))\nlen(ran)"
	want(t, quick(t, h, "ran = []"), map[string]any{"success": true})
	w.CutAt()
	want(t, quick(t, h, code), map[string]any{"result": "1"})
	up, down, _ := w.Passed()
	const points = int64(9)
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
