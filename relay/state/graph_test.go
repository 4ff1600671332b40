package state

import (
	"slices"
	"testing"

	"colabrelay/shared/stacks"
)

// without hides libraries from a kernel, as a VM that lacks them.
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

func TestWhatANotebookHoldsComesBackInAnotherKernel(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		for _, pickler := range []string{"dill", "cloudpickle"} {
			t.Run(pickler, func(t *testing.T) {
				dir := t.TempDir()
				first := newVM(t, s)
				first.run(without(picklers[pickler]...))
				first.runFile("graph.py")
				saved := first.save(dir, "graph")
				if saved.Manifest.Pickler != pickler {
					t.Errorf("saved with %s", saved.Manifest.Pickler)
				}
				checkSkipped(t, saved.Manifest.Skipped, map[string]string{})

				second := newVM(t, s)
				second.run(without(picklers[pickler]...))
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
	})
}

// checkSkipped compares names and reasons; where a reason does not matter it is empty.
func checkSkipped(t *testing.T, got []Lost, want map[string]string) {
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
