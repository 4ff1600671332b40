package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

const (
	// mostFloodGrowth is how much a program may grow, in MiB, by output that nobody reads.
	mostFloodGrowth = 48
	mostAnswer      = 20_000 // characters of a page of output
)

// Code prints until it is interrupted, and for most of the time nobody reads. The answers stay
// short, the memory small, the log within its bound, and the kernel usable.
func TestOutputWithoutEnd(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	const flood = int64(24 << 20)
	e := startExecutor(t, harness.ExecutorConfig{Python: stacks.Old(t).Python})
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Env: []string{"RELAY_HOLD=3s"}})
	before := [2]float64{residentMB(t, e.PID()), residentMB(t, h.PID())}
	want(t, quick(t, h, "written = 0"), map[string]any{"success": true})
	a := call(t, h, "run_code_long", map[string]any{"code": "while True:\n  print(f'{written:099d}')\n  written += 1\n  if written % 1000 == 0: open('count', 'w').write(str(written))"})
	want(t, a, map[string]any{"status": "running"})
	must(t, harness.Poll(within.Context(t), func() (bool, error) {
		return 100*number(t, filepath.Join(e.Config.Dir, "count")) >= flood, nil
	}))
	id := a.String("execution_id")
	a = call(t, h, "get_execution", map[string]any{"execution_id": id, "offset": 0})
	if !strings.HasPrefix(a.String("stdout"), strings.Repeat("0", 99)+"\n"+strings.Repeat("0", 98)+"1\n") {
		t.Errorf("the beginning is %.300q", a.String("stdout"))
	}
	must(t, harness.Poll(within.Context(t), func() (bool, error) { // a busy machine may answer late
		return !call(t, h, "interrupt_execution", map[string]any{"execution_id": id}).IsError, nil
	}))
	must(t, harness.Poll(within.Context(t), func() (bool, error) {
		a = call(t, h, "get_execution", map[string]any{"execution_id": id, "offset": a.Int("next_offset"), "wait_seconds": 3})
		return a.String("status") != "running", nil
	}))
	want(t, a, map[string]any{"status": "interrupted"})
	if len(a.Text) > mostAnswer {
		t.Errorf("an answer has %d characters", len(a.Text))
	}
	want(t, quick(t, h, "written > 1000"), map[string]any{"result": "True"})
	for i, p := range []struct {
		name string
		pid  int
	}{{"executor", e.PID()}, {"relay", h.PID()}} {
		if grown := residentMB(t, p.pid) - before[i]; grown > mostFloodGrowth {
			t.Errorf("the %s grew by %.0f MiB", p.name, grown)
		}
	}
	kept := size(t, filepath.Join(e.Config.Dir, ".colab-relay", "executions"))
	t.Logf("%d bytes are kept", kept)
	if most := int64(256+10) << 20; kept > most { // one run's log, and what else is there
		t.Errorf("%d bytes are kept, want at most %d", kept, most)
	}
}

// number returns the number in a file; 0 while there is none.
func number(t *testing.T, path string) (n int64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	_, _ = fmt.Sscan(string(text), &n) // the file may be empty for a moment
	return n
}
