package e2e

import (
	"fmt"
	"strings"
	"testing"

	"colabrelay/shared/tier"
)

// unpicklable makes variables that cannot be saved, between some that can.
const unpicklable = `
import socket
before = list(range(1000))
sock, numbers = socket.socket(), (n for n in range(3))
class Refuses:
    def __reduce__(self): raise RuntimeError('no copy of this')
class Lies:
    def __reduce__(self): return (open, ('/nowhere/at/all',))
refuses, lies, inside = Refuses(), Lies(), {'deep': [Refuses()], 'fine': before}
nested = []
for _ in range(100_000): nested = [nested]
after = {'same': before}
`

// Variables that cannot be saved or restored are named with the reason, and the others move to
// another VM.
func TestUnpicklableVariablesAreNamedAndTheOthersMove(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLab(t, "20s")
	want(t, quick(t, l.host, unpicklable), map[string]any{"success": true})
	a := untilDone(t, l, "save_kernel_state", map[string]any{"name": "mixed"})
	want(t, a, map[string]any{"success": true, "status": "saved"})
	skipped := fmt.Sprint(a.Fields["skipped"])
	for _, name := range []string{"sock", "numbers", "refuses", "nested", "inside"} {
		if !strings.Contains(skipped, "name:"+name+" ") {
			t.Errorf("%s is not named: %s", name, skipped)
		}
	}
	if !strings.Contains(skipped, "no copy of this") {
		t.Errorf("the reason is missing: %s", skipped)
	}
	l.newVM()
	a = untilDone(t, l, "restore_kernel_state", map[string]any{"name": "mixed"})
	want(t, a, map[string]any{"success": true, "status": "restored"})
	if skipped := fmt.Sprint(a.Fields["skipped"]); !strings.Contains(skipped, "name:lies ") {
		t.Errorf("lies is not named: %s", skipped)
	}
	want(t, quick(t, l.host, "before == list(range(1000)), after['same'] is before, [n for n in ('sock', 'numbers', 'refuses', 'lies', 'inside', 'nested') if n in globals()]"), map[string]any{"result": "(True, True, [])"})
}
