package kernelstate

import (
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

// Unpickling runs code. Who restores on another VM learns that the code of the first one may have
// run there.
func TestARestoreOnAnotherVMSaysThatItRanCodeOfTheFirst(t *testing.T) {
	t.Parallel()
	dir, first, second := t.TempDir(), borrowVM(t, stacks.Old(t)), borrowVM(t, stacks.Old(t))
	first.run("kept = 1")
	first.save(dir, "moving")
	const says = "come from another VM"
	for name, c := range map[string]struct {
		v    *vm
		want int
	}{"the same VM": {first, 0}, "another VM": {second, 1}} {
		got := c.v.restore(dir, "moving")
		if n := strings.Count(strings.Join(got.Warnings, "\n"), says); n != c.want {
			t.Errorf("%s: it says so %d times, want %d: %q", name, n, c.want, got.Warnings)
		}
	}
}
