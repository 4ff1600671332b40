package kernelstate

import (
	"slices"
	"testing"
)

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
