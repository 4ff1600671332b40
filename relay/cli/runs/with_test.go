package runs

import (
	"testing"
)

// A VM chooses the name that it does not find.
func TestNamesOfModulesAreNoPaths(t *testing.T) {
	for name, want := range map[string]bool{"a": true, "_a1.ä": true, "": false, "../a": false, "a/b": false, ".": false, "a..b": false, "1a": false, "a\x1b": false, "a\n": false, "/etc": false} {
		if got := moduleName().MatchString(name); got != want {
			t.Errorf("%q is a name: %t", name, got)
		}
	}
}
