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
)

func TestDeletedStateDirectoryIsRestoredAsFarAsItIsKnown(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "executions")
	q := newBench(t, stacks.Old(t), settings{dir: dir})
	past := q.run("print('gone')")
	for range recentRuns { // after these its log is closed
		q.run("pass")
	}
	running := q.submit("print('before', flush=True)\ninput()\nprint('after')", 0)
	wantStatus(t, q.settle(running), contract.StatusWaitingForInput)
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if x := read(t, q.journal, running); text(x, contract.Stdout) != "before\n" {
		t.Errorf("the open segment reads as %+v", x.Events)
	}
	if err := q.Input(t.Context(), running, contract.Input{}); err != nil {
		t.Fatal(err)
	}
	x := q.settle(running)
	wantStatus(t, x, contract.StatusSucceeded)
	if text(x, contract.Stdout) != "before\nafter\n" {
		t.Errorf("events = %+v", x.Events)
	}
	if x := q.settle(past.ExecutionID); len(x.Events) != 1 || x.Events[0].Type != contract.EventGap || x.Status != contract.StatusSucceeded {
		t.Errorf("the lost output reads as %+v", x)
	}
	next := q.run("print('next')")
	wantStatus(t, next, contract.StatusSucceeded)
	q.awaitFlushed()
	q.stop()
	again := reopened(t, dir)
	for _, want := range []contract.Execution{past, x, next} {
		got := read(t, again, want.ExecutionID)
		wantStatus(t, got, contract.StatusSucceeded)
		if want.ExecutionID != past.ExecutionID && text(got, contract.Stdout) != text(want, contract.Stdout) {
			t.Errorf("the next executor reads %+v", got)
		}
	}
	if id, err := again.Submitted(contract.Submit{RequestID: past.RequestID, Code: "print('gone')"}); err != nil || id != past.ExecutionID {
		t.Errorf("the same request_id again: %q, %v", id, err)
	}
}

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
	q.awaitFlushed()
	q.stop()
	again := reopened(t, dir)
	got := map[string]contract.Status{running: read(t, again, running).Status, queued: read(t, again, queued).Status}
	want := map[string]contract.Status{running: contract.StatusSucceeded, queued: contract.StatusFailed}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("on disk (-want +got):\n%s", diff)
	}
}
