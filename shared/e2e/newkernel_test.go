package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// gathered is a run whose value depends on the order and number of its iterations. It
// keeps them in a number, a list, a dict and an array.
const (
	gatheredSetup = "import time\nimport numpy as np\ntotal, trail, seen, grid = 7, [], {}, np.zeros((3, 3))"
	gatheredLoop  = `
total = (total * 31 + i) % 1_000_003
trail.append(total)
seen[i % 5] = seen.get(i % 5, 0) * 3 % 1009 + i
grid[i % 3] = grid[i % 3] * 2 % 1009 + i
time.sleep(0.03)
result = [total, len(trail), sum(trail), sorted(seen.items()), grid.tolist()]
`
	gatheredSteps = 150
)

func gathered(name string) map[string]any {
	return map[string]any{
		"setup_code": gatheredSetup, "loop_code": gatheredLoop, "n_iterations": gatheredSteps, "batch_size": 10, "checkpoint_name": name,
	}
}

// keepOften sets intervals for runs that last a few seconds.
var keepOften = []string{"RELAY_KEEP_EVERY=1s", "RELAY_KEEP_PERCENT=100"}

// finishRun calls the tool until the run is finished. A call may report a dead kernel.
func finishRun(l *lab, args map[string]any) harness.Answer {
	l.t.Helper()
	for range 60 {
		a := call(l.t, l.host, "run_chunked_operation", args)
		if a.Fields["status"] == "finished" || a.Error() == "variables_lost" { // a call may end between the last iteration and the end of its batch
			return a
		}
	}
	l.t.Fatal("the run does not end")
	return harness.Answer{}
}

// gatherUntilKept starts a run and returns after the relay has kept its variables. A kernel
// that is lost earlier stops the run.
func gatherUntilKept(l *lab, name string) {
	l.t.Helper()
	for {
		a := call(l.t, l.host, "run_chunked_operation", gathered(name))
		if a.IsError || a.Int("completed") == gatheredSteps {
			l.t.Fatalf("%s: %s", name, a.Text)
		}
		if kept, _ := filepath.Glob(filepath.Join(l.laptop.Dir, "checkpoints", "kept", "*", "*")); len(kept) > 0 {
			return
		}
	}
}

// valueOf returns the value of the last iteration.
func valueOf(l *lab, name string) string {
	l.t.Helper()
	a := call(l.t, l.host, "get_checkpoint", map[string]any{"operation": name})
	data, _ := a.Fields["data"].(map[string]any)
	results, _ := data["results"].([]any)
	last, _ := results[len(results)-1].(map[string]any)
	if fmt.Sprint(last["i"]) != fmt.Sprint(gatheredSteps-1) {
		l.t.Fatalf("the last value is %v", last)
	}
	return fmt.Sprint(last)
}

// restore restores as an agent does: the first call may report that the kernel died.
func restore(l *lab, name string) {
	l.t.Helper()
	for range 5 {
		if a := untilDone(l.t, l, "restore_kernel_state", map[string]any{"name": name}); !a.IsError {
			return
		}
	}
	l.t.Fatal("the state was not restored")
}

func TestARunThatBuildsUpVariablesLivesThroughKernelAndVM(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	strikes := []struct {
		name   string
		strike func(l *lab)
	}{
		{"kernel killed", (*lab).killKernel}, {"executor killed", (*lab).restartExecutor}, {"another VM at the address", (*lab).newVM},
	}
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		l := newLabOn(t, s, "3s", keepOften...)
		if a := finishRun(l, gathered("whole")); a.IsError {
			t.Fatal(a.Text)
		}
		want := valueOf(l, "whole")
		for n, c := range strikes {
			for _, saves := range []bool{false, true} {
				if saves != (s.Name == "old") { // half on each stack
					continue
				}
				name := fmt.Sprintf("run %d %t", n, saves)
				gatherUntilKept(l, name)
				if saves {
					untilDone(t, l, "save_kernel_state", map[string]any{"name": name})
				}
				c.strike(l)
				if saves {
					restore(l, name)
				}
				last := finishRun(l, gathered(name))
				if last.IsError || last.Fields["status"] != "finished" {
					t.Fatalf("%s, %s: %s", c.name, name, last.Text)
				}
				if got := valueOf(l, name); got != want {
					t.Errorf("%s, saved before %t: the value is %s, that of an uninterrupted run %s", c.name, saves, got, want)
				}
			}
		}
		left, _ := os.ReadDir(filepath.Join(l.laptop.Dir, "checkpoints", "kept"))
		if len(left) > 0 {
			t.Errorf("the kept variables of %d finished runs were not deleted", len(left))
		}
	})
}
