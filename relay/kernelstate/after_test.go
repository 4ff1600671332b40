package kernelstate

import (
	"strings"
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// A save or restore answers when the kernel is idle again. Otherwise the next request for
// the variables would be refused because of the relay's own clean-up.
func TestVariablesCanBeListedRightAfterASaveAndARestore(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		dir, v := t.TempDir(), borrowVM(t, s)
		v.run("kept = list(range(1000))")
		list := func(after string) {
			t.Helper()
			all, err := v.client.Variables(t.Context())
			if err != nil || len(all.Variables) != 1 || all.Variables[0].Name != "kept" {
				t.Errorf("after a %s: %+v, %v", after, all, err)
			}
			if _, err := v.client.Inspect(t.Context(), "kept"); err != nil {
				t.Errorf("after a %s: %v", after, err)
			}
		}
		for range 16 {
			v.save(dir, "again")
			list("save")
		}
		for range 4 {
			v.restore(dir, "again")
			list("restore")
		}
		if left := strings.TrimSpace(v.run("import glob, tempfile; print(*glob.glob(tempfile.gettempdir() + '/*state*/*'))")); left != "" {
			t.Errorf("left on the VM: %s", left)
		}
	})
}

// Unpickling runs code. Who restores on another VM learns that the code of the first one may have
// run there.
func TestARestoreOnAnotherVMSaysThatItRanCodeOfTheFirst(t *testing.T) {
	tier.Long(t)
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
