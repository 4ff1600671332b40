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
