package kernelstate

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"colabrelay/shared/kernelpy"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// each runs f on both kernel stacks, with each library that can save functions.
func each(t *testing.T, f func(t *testing.T, s stacks.Stack, pickler string)) {
	t.Helper()
	t.Run("cloudpickle", func(t *testing.T) { t.Parallel(); f(t, stacks.Old(t), "cloudpickle") })
	stacks.Each(t, func(t *testing.T, s stacks.Stack) { t.Parallel(); f(t, s, "dill") })
}

// without returns code that hides libraries from a kernel, as on a VM that lacks them.
func without(libraries ...string) string {
	code := "import sys\n"
	for _, l := range libraries {
		code += "sys.modules['" + l + "'] = None\n"
	}
	return code + "del sys"
}

var picklers = map[string][]string{
	"dill":        nil,
	"cloudpickle": {"dill"},
	"pickle":      {"dill", "cloudpickle"},
}

func TestNotebookVariablesAreRestoredIntoAnotherKernel(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	each(t, func(t *testing.T, s stacks.Stack, pickler string) {
		dir := t.TempDir()
		noRepr := fmt.Sprintf("import os; os.environ['REPR_FILE'] = %q", filepath.Join(dir, "repr was called"))
		first, second := borrowVM(t, s), borrowVM(t, s)
		for _, v := range []*vm{first, second} {
			v.newKernel()
			v.run(noRepr + "\ndel os\n" + without(picklers[pickler]...))
		}
		first.runFile("graph.py")
		saved := first.save(dir, "graph")
		if saved.Manifest.Pickler != pickler {
			t.Errorf("saved with %s", saved.Manifest.Pickler)
		}
		checkSkipped(t, saved.Manifest.Skipped, nil)

		restored := second.restore(dir, "graph")
		if len(restored.Loaded.Failed)+len(restored.Loaded.Warnings) > 0 {
			t.Errorf("failed: %+v, warnings: %q", restored.Loaded.Failed, restored.Loaded.Warnings)
		}
		if got, want := restored.Loaded.VariableCount, saved.Manifest.VariableCount; got != want {
			t.Errorf("%d variables of %d", got, want)
		}
		if got := second.runFile("graph_check.py"); got != "checked\n" {
			t.Error(got)
		}
	})
}

func TestNoTraceIsLeftInTheKernel(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		v, dir := borrowVM(t, s), t.TempDir()
		v.run("x, cells = 1, len(In)")
		names := "import sys; print(sorted(n for n in globals() if n[0] != '_'), sorted(n for n in sys.modules if 'colab_relay' in n and not n.startswith('" + kernelpy.Package() + "')), sys.getrecursionlimit())"
		before := v.run(names)
		v.save(dir, "trace")
		v.restore(dir, "trace")
		if after := v.run(names); after != before {
			t.Errorf("before %s after %s", before, after)
		}
		if got := v.run("print(len(In) - cells)"); got != "3\n" { // the cells of the user since then
			t.Errorf("the history has %s more cells", got)
		}
	})
}

// checkSkipped compares names and reasons. An empty reason in want matches any.
func checkSkipped(t *testing.T, got []Omission, want map[string]string) {
	t.Helper()
	seen := []string{}
	for _, l := range got {
		seen = append(seen, l.Name)
		if reason, ok := want[l.Name]; !ok || reason != "" && reason != l.Reason {
			t.Errorf("skipped %q: %s", l.Name, l.Reason)
		}
	}
	for name := range want {
		if !slices.Contains(seen, name) {
			t.Errorf("%q was not skipped", name)
		}
	}
}
