package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// soak reports whether the long random suites run completely.
func longSuites() bool { return os.Getenv("LONG") != "" }

// likeColab reports whether s is Colab's stack, on which long tests run in full.
func likeColab(s stacks.Stack) bool { return s.Name == "old" }

// diary makes each iteration append its number to a file on the VM, with the process id
// and start time that identify the kernel.
const diarySetup = `
import os, time
def life(): # not a variable, because a new kernel is given those of the old one
    return '%d/%s' % (os.getpid(), open('/proc/self/stat').read().rsplit(')')[1].split()[19])
`

const diaryLoop = `
time.sleep(0.03)
with open('diary.txt', 'a') as diary:
    diary.write('{} {}\n'.format(life(), i))
print('did', i)
`

// faults are what a run must survive, with the names that are logged.
var faults = []struct {
	name   string
	strike func(l *lab)
}{
	{"relay killed", (*lab).restartRelay},
	{"executor killed", (*lab).restartExecutor},
	{"kernel killed", (*lab).killKernel},
	{"tunnel cut", func(l *lab) { l.network.Stop(); l.plug() }},
}

func TestChunkedRunsLiveThroughKillsAndCuts(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	runs, seed := 4, uint64(1)
	if longSuites() {
		runs, seed = 52, uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	l := newLab(t, "3s")
	for run := range runs {
		name, n := fmt.Sprintf("run%d", run), 40+random.IntN(40)
		first := run % len(faults) // every fault comes first in some run
		chaos := startChaos(l, random, first)
		chaos.finish(name, n)
		checkDiary(t, l, n, chaos.applied)
		if err := os.Remove(filepath.Join(l.vm.Dir, "diary.txt")); err != nil {
			t.Fatal(err)
		}
	}
}

// chaos applies faults between and during the calls of one run.
type chaos struct {
	l       *lab
	random  *rand.Rand
	next    int
	left    int
	applied []string
}

func startChaos(l *lab, random *rand.Rand, first int) *chaos {
	return &chaos{l: l, random: random, next: first, left: 2 + random.IntN(2)}
}

// finish calls the tool as an agent does, until the run is done. Faults happen during
// calls, so their answers may be lost.
func (c *chaos) finish(name string, n int) {
	t := c.l.t
	t.Helper()
	deadline := time.Now().Add(4 * time.Minute)
	for time.Now().Before(deadline) {
		answered := make(chan harness.Answer, 1)
		host := c.l.host
		ctx := within(t)
		go func() {
			a, err := host.Call(ctx, "run_chunked_operation", map[string]any{
				"setup_code": diarySetup, "loop_code": diaryLoop, "n_iterations": n, "batch_size": 1 + n/5, "checkpoint_name": name,
			})
			if err != nil {
				a.Text = err.Error() // the relay was killed
			}
			answered <- a
		}()
		c.strikeWhile(answered)
		a := <-answered
		t.Logf("%s: completed %d of %d, %s", name, a.Int("completed"), n, firstLine(a.Text))
		// A call that ends just after the last iteration does not know yet that the run has.
		if a.Int("completed") == int64(n) && a.Fields["can_continue"] != true {
			if a.IsError {
				t.Errorf("a finished run answers: %s", a.Text)
			}
			return
		}
	}
	t.Fatalf("%s did not finish", name)
}

// strikeWhile applies the next fault at a random moment of the call.
func (c *chaos) strikeWhile(answered chan harness.Answer) {
	if c.left == 0 {
		return
	}
	timer := time.NewTimer(time.Duration(c.random.Int64N(int64(1500 * time.Millisecond))))
	defer timer.Stop()
	select {
	case a := <-answered:
		answered <- a
		return
	case <-timer.C:
	}
	fault := faults[c.next%len(faults)]
	c.next, c.left = c.random.IntN(len(faults)), c.left-1
	c.applied = append(c.applied, fault.name)
	c.l.t.Logf("%s", fault.name)
	fault.strike(c.l)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// checkDiary checks the file on the VM: each number must be in it, and none twice in one
// kernel.
func checkDiary(t *testing.T, l *lab, n int, applied []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.vm.Dir, "diary.txt"))
	if err != nil {
		t.Fatal(err)
	}
	seen, did := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if seen[line] {
			t.Errorf("after %v: %q ran twice in one kernel", applied, line)
		}
		seen[line] = true
		_, number, _ := strings.Cut(line, " ")
		did[number] = true
	}
	for i := range n {
		if !did[fmt.Sprint(i)] {
			t.Errorf("after %v: iteration %d never ran", applied, i)
		}
	}
	if len(did) != n {
		t.Errorf("after %v: %d different iterations, want %d", applied, len(did), n)
	}
}

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
	l := newLab(t, "2s")
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
