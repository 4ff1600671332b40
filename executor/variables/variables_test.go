package variables

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/kernelpy"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// The same cells run in two kernels; only one is asked questions meanwhile.
func TestQuestionsLeaveNoTrace(t *testing.T) {
	tier.Long(t)
	// Only the package remains in sys.modules.
	state := `(In[-2:], len(In), Out, _, __, ___, _i, _ii, get_ipython().execution_count,
		sorted(globals()), [m for m in __import__("sys").modules if "colab_relay" in m and not m.startswith("` + kernelpy.Package() + `")],
		len(__import__("sys").meta_path), get_ipython().user_ns_hidden.keys() - {"_i1"},
		list(get_ipython().history_manager.get_range(output=True)))`
	cells := []string{"1 + 1", "x = [1]; x", "'three'", "y = 4"}
	ask := func(t *testing.T, k *kernel) {
		t.Helper()
		if _, err := Variables(t.Context(), k.Client); err != nil {
			t.Fatal(err)
		}
		if got := k.preview("x"); got != "[1]" {
			t.Fatalf("x shows as %q", got)
		}
		if _, err := Inspect(t.Context(), k.Client, "none of that name"); !errors.Is(err, ErrNoVariable) {
			t.Fatal(err)
		}
	}
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		asked, left := startKernel(t, s), startKernel(t, s)
		for n, cell := range cells {
			asked.run(cell, "None")
			left.run(cell, "None")
			if n > 0 {
				ask(t, asked)
			}
		}
		if diff := cmp.Diff(left.run("", state), asked.run("", state)); diff != "" {
			t.Errorf("the kernel that was asked differs (-left alone +asked):\n%s", diff)
		}
	})
}
