package execution

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// A run whose start can't be saved does not run: the next executor would report that it
// never started.
func TestARunWhoseStartCannotBeSavedDoesNotRun(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	q := newBench(t, stacks.Old(t), settings{dir: dir})
	q.run("n = 0")
	running := q.submit("input()", 0)
	wantStatus(t, q.settle(running), contract.StatusWaitingForInput)
	queued := q.submit("n += 1", 0)
	folder := filepath.Join(dir, queued) // is replaced by a file
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := q.Input(t.Context(), running, contract.Input{}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, q.settle(running), contract.StatusSucceeded)
	x := q.settle(queued)
	if x.Status != contract.StatusFailed || !strings.Contains(x.Reason, "did not run") {
		t.Errorf("the queued one: %s, %q", x.Status, x.Reason)
	}
	if got := text(q.run("print(n)"), contract.Stdout); got != "0\n" {
		t.Errorf("n = %s", got)
	}
}
