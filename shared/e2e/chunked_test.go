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
)

// The value is right only if each iteration ran exactly once and in order.
const (
	foldSetup = "import os, time\ntotal = 7\ntrail = []"
	// The loop waits before iterations 15 and 95 until a file of the VM exists.
	foldLoop  = "while i == 15 and not os.path.exists('first') or i == 95 and not os.path.exists('second'): time.sleep(0.01)\ntotal = (total * 31 + i) % 1_000_003\ntrail.append(i)\nresult = total"
	foldSteps = 120
)

func fold() (total int) {
	total = 7
	for i := range foldSteps {
		total = (total*31 + i) % 1_000_003
	}
	return total
}

func TestARunIsFinishedOnASecondVMAfterItsStateIsRestored(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLab(t, "5s")
	run := map[string]any{"setup_code": foldSetup, "loop_code": foldLoop, "n_iterations": foldSteps, "batch_size": 10, "checkpoint_name": "moving"}
	save := map[string]any{"name": "moving"}
	until := func(least, below int64) {
		t.Helper()
		for {
			a := call(t, l.host, "run_chunked_operation", run)
			if done := a.Int("completed"); a.IsError || done >= below {
				t.Fatalf("the run went too far, or failed: %s", a.Text)
			} else if done >= least {
				return
			}
		}
	}
	until(1, 16)
	want(t, call(t, l.host, "save_kernel_state", save), map[string]any{"success": true, "can_continue": true}) // its turn comes after the round
	touch(t, l, "first")
	want(t, untilDone(t, l, "save_kernel_state", save), map[string]any{"success": true, "status": "saved"})
	// Iterations after the save must run again, or their part of the sum is lost.
	until(90, 96)
	l.newVM()
	touch(t, l, "second")
	restored := untilDone(t, l, "restore_kernel_state", map[string]any{"name": "moving"})
	want(t, restored, map[string]any{"success": true, "status": "restored"})
	last := untilDone(t, l, "run_chunked_operation", run)
	want(t, last, map[string]any{"success": true, "completed": foldSteps, "remaining": 0})
	want(t, quick(t, l.host, "total, trail == list(range(120))"), map[string]any{"result": fmt.Sprintf("(%d, True)", fold())})
}

// touch makes an empty file on the VM.
func touch(t *testing.T, l *lab, name string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(l.vm.Dir, name), nil, 0o600))
}

// untilDone calls a tool until it no longer says can_continue.
func untilDone(t *testing.T, l *lab, tool string, args map[string]any) harness.Answer {
	t.Helper()
	for range 50 {
		a := call(t, l.host, tool, args)
		if a.IsError || a.Fields["can_continue"] != true {
			return a
		}
	}
	t.Fatalf("%s never ends", tool)
	return harness.Answer{}
}

func TestTheDocumentedExampleOfChunkedRunsWorks(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e, h := pair(t, s)
		for _, name := range []string{"a.txt", "b.txt", "c.txt"} {
			if err := os.WriteFile(filepath.Join(e.Config.Dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := call(t, h, "run_chunked_operation", map[string]any{
			"setup_code":   "import os; files = sorted(f for f in os.listdir('.') if f.endswith('.txt'))",
			"loop_code":    "print(f'Processing {i}: {files[{i}]}')",
			"n_iterations": 3,
		})
		want(t, a, map[string]any{"success": true, "completed": 3, "remaining": 0, "progress_pct": 100, "can_continue": false})
		for i, name := range []string{"a.txt", "b.txt", "c.txt"} {
			if line := fmt.Sprintf("Processing %d: %s\n", i, name); !strings.Contains(a.String("output"), line) {
				t.Errorf("output lacks %q: %q", line, a.String("output"))
			}
		}
	})
}
