package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/chunked"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

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
