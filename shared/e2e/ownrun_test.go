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
	"colabrelay/shared/stacks"
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

// onStopped answers what a run asks, with the answer that brings the value of a run alone.
func onStopped(a harness.Answer) map[string]any {
	switch a.Error() {
	case "variables_changed", "iteration_incomplete":
		return map[string]any{"on_stop": "restore"}
	case "variables_lost":
		return map[string]any{"on_change": "restart"}
	}
	return map[string]any{}
}

// rightOrAsks runs a run to its end, answering what it asks, and returns its last value and whether
// it asked.
func rightOrAsks(t *testing.T, l *lab, name string) (value string, asked bool) {
	t.Helper()
	args := map[string]any{"checkpoint_name": name}
	for range 60 {
		a := call(t, l.host, "run_chunked_operation", args)
		if a.Fields["status"] == "finished" {
			r, err := chunked.Load(filepath.Join(l.laptop.Dir, "checkpoints"), name)
			if err != nil || len(r.Results) == 0 {
				t.Fatalf("%d values, %v", len(r.Results), err)
			}
			return string(r.Results[len(r.Results)-1].Value), asked
		}
		args = onStopped(a)
		asked = asked || len(args) > 0
		args["checkpoint_name"] = name
	}
	t.Fatalf("%s does not finish", name)
	return "", false
}

// Each of these once ended as finished with a wrong value.
func TestARunIsRightOrAsksWhateverOtherCodeDoes(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLabOn(t, stacks.Old(t), "2s", keepOften...)
	const pause = "\nimport time; time.sleep(.04)"
	for name, c := range map[string]struct {
		setup, loop string
		between     func(name string)
	}{
		"another run's setup": {"total = 0", "total += 1\nresult = total" + pause, func(name string) {
			call(t, l.host, "run_chunked_operation", map[string]any{"setup_code": "total = 1000", "loop_code": "total += 1", "n_iterations": 2, "checkpoint_name": "other " + name})
		}},
		"a list in a dict, new kernel": {"hist = {'loss': []}", "for k, v in hist.items(): v.append(i)\nresult = len(hist['loss'])" + pause, func(string) { l.killKernel() }},
		"NumPy's numbers, new kernel":  {"import numpy as np\nnp.random.seed(1)", "result = float(np.random.rand())" + pause, func(string) { l.killKernel() }},
	} {
		args := func(n int) map[string]any {
			return map[string]any{"setup_code": c.setup, "loop_code": c.loop, "n_iterations": n, "batch_size": 5, "checkpoint_name": name}
		}
		const n = 100
		wantRun := args(n)
		wantRun["checkpoint_name"], wantRun["loop_code"] = "alone "+name, strings.TrimSuffix(c.loop, pause)
		call(t, l.host, "run_chunked_operation", wantRun)
		right, _ := rightOrAsks(t, l, "alone "+name)
		a := call(t, l.host, "run_chunked_operation", args(n))
		if a.IsError || a.Fields["status"] == "finished" {
			t.Fatalf("%s: %s", name, a.Text)
		}
		c.between(name)
		if got, asked := rightOrAsks(t, l, name); got != right {
			t.Errorf("%s: the value is %s, alone it is %s (asked: %v)", name, got, right, asked)
		}
	}
}

// Classes that other code defined are missing in a new kernel: the answer says so, and once they
// are defined again, the run goes on.
func TestARunWhoseCopyNeedsAMissingClassSaysSo(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLabOn(t, stacks.Old(t), "2s", keepOften...)
	const class = "class Sum:\n    n = 0\n    def add(self, i): self.n += i"
	quick(t, l.host, class)
	run := map[string]any{
		"setup_code": "a = Sum()", "loop_code": "a.add(i)\nresult = a.n\nimport time; time.sleep(.05)",
		"n_iterations": 200, "batch_size": 5, "checkpoint_name": "class",
	}
	again := map[string]any{"checkpoint_name": "class"}
	a := call(t, l.host, "run_chunked_operation", run)
	for tries := 0; a.Int("completed") < 20 && tries < 20; tries++ { // a round has ended, and there is a copy
		a = call(t, l.host, "run_chunked_operation", again)
	}
	l.killKernel()
	lost := call(t, l.host, "run_chunked_operation", again)
	for range 20 { // until the kernel's end is seen
		if lost.Error() == "variables_lost" {
			break
		}
		lost = call(t, l.host, "run_chunked_operation", again)
	}
	if !strings.Contains(lost.Text, "could not be loaded") || !strings.Contains(lost.Text, "Sum") || strings.Contains(lost.Text, "there is no copy") {
		t.Errorf("it does not name the class: %s", lost.Text)
	}
	quick(t, l.host, class)
	last := untilDone(t, l, "run_chunked_operation", again)
	want(t, last, map[string]any{"success": true, "status": "finished", "completed": 200})
	if !strings.Contains(last.Text, "199: 19900\n") {
		t.Errorf("the last value is not 19900: %s", last.Text)
	}
}

// A copy from another VM may run code of whoever controlled that VM.
func TestARunThatContinuesOnAnotherVMSaysWhoseVariablesItLoaded(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLabOn(t, stacks.Old(t), "3s", keepOften...)
	gatherUntilKept(l, "moved")
	l.newVM()
	said := 0
	for range 60 {
		a := callOnce(t, l.host, "run_chunked_operation", map[string]any{"checkpoint_name": "moved"})
		said += strings.Count(a.Text, "come from another VM")
		if a.Fields["status"] == "finished" {
			break
		}
	}
	if said != 1 {
		t.Errorf("it said so %d times", said)
	}
}
