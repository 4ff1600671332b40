package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/relay/chunked"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// lab is a VM and a laptop. Each can be killed and restarted with the same folders and the same
// address.
type lab struct {
	t        *testing.T
	vm       harness.ExecutorConfig
	laptop   harness.HostConfig
	executor *harness.Executor
	host     *harness.Host
}

func newLab(t *testing.T, hold string, env ...string) *lab {
	t.Helper()
	return labOf(t, startExecutor(t, harness.ExecutorConfig{}), hold, env)
}

// borrowLab is newLab with an executor that other tests used before.
func borrowLab(t *testing.T, hold string, env ...string) *lab {
	t.Helper()
	return labOf(t, borrowExecutor(t, stacks.Old(t)), hold, env)
}

func labOf(t *testing.T, e *harness.Executor, hold string, env []string) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, vm: e.Config, executor: e}
	l.laptop = harness.HostConfig{Dir: dir, Env: append([]string{"RELAY_HOLD=" + hold, "LOCAL_SAVE_DIR=" + dir + "/saved", "CHECKPOINT_DIR=" + dir + "/checkpoints"}, env...)}
	l.startHost()
	return l
}

func (l *lab) startHost() {
	l.t.Helper()
	l.host = startHost(l.t, "http://"+l.vm.Listen, l.laptop)
}

// newVM ends the VM and starts an empty one at the same address.
func (l *lab) newVM() {
	l.t.Helper()
	l.executor.Kill()
	l.vm.Dir = l.t.TempDir()
	l.executor = startExecutor(l.t, l.vm)
}

// killKernel kills the kernel's process as an out-of-memory kill would.
func (l *lab) killKernel() {
	var record struct{ PID int }
	data, err := os.ReadFile(filepath.Join(l.vm.Dir, ".colab-relay", "kernel.json"))
	if err == nil && json.Unmarshal(data, &record) == nil && record.PID > 1 {
		_ = syscall.Kill(record.PID, syscall.SIGKILL)
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

// A loop goes on to its end on the VM, and a later call reads every value.
func TestALoopFinishesWhileNoRelayExists(t *testing.T) {
	l := borrowLab(t, "1s")
	const n = 100
	run := map[string]any{
		"setup_code": "total = 0", "loop_code": "total += i\nprint('did', i)\nresult = total\nif i == 99: open('last', 'w').close()", "n_iterations": n, "batch_size": 20, "checkpoint_name": "alone",
	}
	if a := call(t, l.host, "run_chunked_operation", run); a.IsError {
		t.Fatal(a.Text)
	}
	l.host.Kill()
	awaitFile(t, filepath.Join(l.vm.Dir, "last"))
	l.startHost()
	a := untilDone(t, l, "run_chunked_operation", map[string]any{"checkpoint_name": "alone"})
	want(t, a, map[string]any{"success": true, "status": "finished", "completed": n})
	r, err := chunked.Load(filepath.Join(l.laptop.Dir, "checkpoints"), "alone")
	if err != nil || len(r.Results) != n {
		t.Fatalf("%d values, %v", len(r.Results), err)
	}
	total := 0
	for i, v := range r.Results {
		total += i
		if v.Iteration != int64(i) || string(v.Value) != fmt.Sprint(total) {
			t.Fatalf("value %d is %s of iteration %d, want %d", i, v.Value, v.Iteration, total)
		}
	}
}

// A notebook goes on to its end on the VM, and a later call writes all its outputs.
func TestANotebookFinishesWhileNoRelayExists(t *testing.T) {
	l := borrowLab(t, "1s", "RELAY_TOOLSETS=core,notebook")
	const n, waiting = 12, 2 // a cell waits until the relay is gone
	var cells []map[string]any
	for i := range n {
		code := fmt.Sprintf("total = %d\nopen('ran', 'a').write('%d ')\nprint('cell', %d, 'gives', total)", i*i, i, i)
		switch i {
		case waiting:
			code += "\nimport os, time\nwhile not os.path.exists('gone'): time.sleep(.01)"
		case n - 1:
			code += "\nopen('last', 'w').close()"
		}
		cells = append(cells, map[string]any{"cell_type": "code", "id": fmt.Sprintf("cell%d", i), "metadata": map[string]any{}, "source": code, "outputs": []any{}, "execution_count": nil})
	}
	text, err := json.Marshal(map[string]any{"cells": cells, "metadata": map[string]any{}, "nbformat": 4, "nbformat_minor": 5})
	must(t, err)
	path := filepath.Join(l.laptop.Dir, "long.ipynb")
	must(t, os.WriteFile(path, text, 0o600))

	a := call(t, l.host, "run_notebook", map[string]any{"notebook_path": path})
	if a.IsError || a.Fields["can_continue"] != true {
		t.Fatal(a.Text)
	}
	awaitFile(t, filepath.Join(l.vm.Dir, "ran"))
	l.host.Kill()
	must(t, os.WriteFile(filepath.Join(l.vm.Dir, "gone"), nil, 0o600))
	awaitFile(t, filepath.Join(l.vm.Dir, "last"))
	l.startHost()
	want(t, untilDone(t, l, "run_notebook", map[string]any{"notebook_path": path}), map[string]any{"success": true, "status": "succeeded"})

	var ran strings.Builder
	var saved struct {
		Cells []struct {
			Outputs []struct{ Text any }
		}
	}
	text, err = os.ReadFile(path)
	must(t, err)
	must(t, json.Unmarshal(text, &saved))
	for i := range n {
		fmt.Fprintf(&ran, "%d ", i)
		if got := fmt.Sprint(saved.Cells[i].Outputs); !strings.Contains(got, fmt.Sprintf("cell %d gives %d", i, i*i)) || len(saved.Cells[i].Outputs) != 1 {
			t.Errorf("cell %d has the outputs %s", i, got)
		}
	}
	if got, err := os.ReadFile(filepath.Join(l.vm.Dir, "ran")); err != nil || string(got) != ran.String() {
		t.Errorf("the cells that ran are %s, %v", got, err)
	}
}

// awaitFile waits until the VM has written a file.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	within.Until(t, path+" exists", func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// keepOften sets intervals for runs that last a few seconds.
var keepOften = []string{"RELAY_KEEP_EVERY=1s", "RELAY_KEEP_PERCENT=100"}

// longRun is the arguments of a run of n iterations, more than there will be until a file named
// stroke exists on the VM.
func longRun(name string, n int) map[string]any {
	return map[string]any{
		"setup_code":   "import os, time\ntotal = 7",
		"loop_code":    "total = (total * 31 + i) % 1_000_003\nif not os.path.exists('stroke'): time.sleep(.02)\nresult = total",
		"n_iterations": n, "batch_size": 50, "checkpoint_name": name,
	}
}

// untilKept starts a run, and returns after the relay has kept its variables.
func untilKept(l *lab, run map[string]any) {
	l.t.Helper()
	for kept := []string(nil); len(kept) == 0; {
		if a := call(l.t, l.host, "run_chunked_operation", run); a.IsError {
			l.t.Fatal(a.Text)
		}
		kept, _ = filepath.Glob(filepath.Join(l.laptop.Dir, "checkpoints", "kept", "*", "*"))
	}
}

// A chunked run goes on in a new kernel from its last kept variables, and its value is that of an
// uninterrupted run.
func TestAChunkedRunLivesThroughTheEndOfItsKernel(t *testing.T) {
	l := borrowLab(t, "1s", keepOften...)
	const n = 2000
	run := longRun("killed", n)
	untilKept(l, run)
	l.killKernel()
	touch(t, l, "stroke")
	var last harness.Answer
	for range 60 { // a call may report the dead kernel
		if last = call(t, l.host, "run_chunked_operation", run); last.Fields["status"] == "finished" {
			break
		}
	}
	want(t, last, map[string]any{"success": true, "status": "finished", "completed": n})
	total := 7
	for i := range n {
		total = (total*31 + i) % 1_000_003
	}
	want(t, quick(t, l.host, "total"), map[string]any{"result": fmt.Sprint(total)})
}

// A copy from another VM may run code of whoever controlled that VM.
func TestARunThatContinuesOnAnotherVMSaysWhoseVariablesItLoaded(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLab(t, "3s", keepOften...)
	run := longRun("moved", 2000)
	untilKept(l, run)
	l.newVM()
	touch(t, l, "stroke")
	said := 0
	for range 60 {
		a := callOnce(t, l.host, "run_chunked_operation", run)
		said += strings.Count(a.Text, "come from another VM")
		if a.Fields["status"] == "finished" {
			break
		}
	}
	if said != 1 {
		t.Errorf("it said so %d times", said)
	}
}
