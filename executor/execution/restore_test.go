package execution

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// A run whose start can't be saved does not run: the next executor would report that it
// never started. Everything else that can't be saved is saved later.
func TestStateThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	q := newBench(t, stacks.Old(t), settings{dir: dir})
	q.run("n = 0")
	running := q.submit("input()", 0)
	wantStatus(t, q.settle(running), contract.StatusWaitingForInput)
	queued := q.submit("n += 1", 0)
	for _, id := range []string{running, queued} { // replace the folder by a file
		if err := os.RemoveAll(filepath.Join(dir, id)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, id), nil, 0o600); err != nil {
			t.Fatal(err)
		}
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
	for _, id := range []string{running, queued} {
		if err := os.Remove(filepath.Join(dir, id)); err != nil {
			t.Fatal(err)
		}
	}
	within.Until(t, "the journal is flushed", func() bool { return !q.journal.NeedsFlush() })
	q.stop()
	again := reopened(t, dir)
	got := map[string]contract.Status{running: read(t, again, running).Status, queued: read(t, again, queued).Status}
	want := map[string]contract.Status{running: contract.StatusSucceeded, queued: contract.StatusFailed}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("on disk (-want +got):\n%s", diff)
	}
}
