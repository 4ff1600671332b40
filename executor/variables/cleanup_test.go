package variables

import (
	"slices"
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestCleanupClearsWhatTheUserMade(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		k := startKernel(t, s)
		k.runFile("testdata/cleanup.py")
		k.run("kept", "None")      // held by Out and _
		k.run("'another'", "None") // and by __
		count := k.run("", "get_ipython().execution_count")
		got, err := Cleanup(t.Context(), k.Client)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"stubborn", "returning", "kept", "cycle", "exit", "Big"} {
			if !slices.Contains(got.ClearedVariables, name) {
				t.Errorf("%s is not among the cleared %q", name, got.ClearedVariables)
			}
		}
		if got.VariablesCleared != len(got.ClearedVariables) || slices.Contains(got.ClearedVariables, "plt") {
			t.Errorf("cleared %d: %q", got.VariablesCleared, got.ClearedVariables)
		}
		if got.FiguresClosed != 2 || !got.GPUCacheCleared {
			t.Errorf("closed %d figures, cleared the GPU's cache: %v", got.FiguresClosed, got.GPUCacheCleared)
		}
		for expression, want := range map[string]string{
			"_calls":                         "['del', 'empty_cache']",
			"[ref() for ref in _alive]":      "[None, None]",
			"(Out, _, __, ___)":              "({}, '', '', '')",
			"plt.get_fignums()":              "[]",
			"exit is quit or callable(exit)": "True",
			"In[-2:]":                        `['kept', "'another'"]`,
			"get_ipython().execution_count":  count,
		} {
			if got := k.run("", expression); got != want {
				t.Errorf("%s is %s, want %s", expression, got, want)
			}
		}
		if after, err := Variables(t.Context(), k.Client); err != nil || after.Count != 0 {
			t.Errorf("afterwards: %+v, %v", after, err)
		}
	})
}

// An exception that was not caught keeps its frames, and with them the data they
// worked on.
func TestCleanupForgetsWhatTheLastExceptionHeld(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		k := startKernel(t, s)
		k.run(`
import weakref
class Big: pass
_alive = []
def work():
    big = Big()
    _alive.append(weakref.ref(big))
    return 1 / 0
`, "None")
		k.fail("work()")
		if got := k.run("", "_alive[0]() is None"); got != "False" {
			t.Fatal("the exception holds nothing: this tests nothing")
		}
		if _, err := Cleanup(t.Context(), k.Client); err != nil {
			t.Fatal(err)
		}
		if got := k.run("", "_alive[0]()"); got != "None" {
			t.Errorf("still held: %s", got)
		}
	})
}
