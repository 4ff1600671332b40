package kernelstate

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestNotebookVariablesAreRestoredIntoAnotherKernel(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		dir := t.TempDir()
		noRepr := fmt.Sprintf("import os; os.environ['REPR_FILE'] = %q", filepath.Join(dir, "repr was called"))
		first, second := borrowVM(t, s), borrowVM(t, s)
		for _, v := range []*vm{first, second} {
			v.newKernel()
			v.run(noRepr + "\ndel os")
		}
		first.runFile("graph.py")
		saved := first.save(dir, "graph")
		checkSkipped(t, saved.Manifest.Skipped, nil)

		restored := second.restore(dir, "graph")
		if len(restored.Loaded.Failed)+len(restored.Loaded.Warnings) > 0 {
			t.Errorf("failed: %+v, warnings: %q", restored.Loaded.Failed, restored.Loaded.Warnings)
		}
		if got := second.runFile("graph_check.py"); got != "checked\n" {
			t.Error(got)
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
