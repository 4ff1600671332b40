package execution

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

func TestDeletedStateDirComesBackWithWhatIsKnown(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "executions")
	q := start(t, stacks.Old(t), Config{Dir: dir})
	past := q.run("print('gone')")
	for range recentRuns { // its log is closed then
		q.run("pass")
	}
	running := q.submit("print('before', flush=True)\ninput()\nprint('after')", 0)
	wantStatus(t, q.settle(running), contract.StatusWaitingForInput)
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if x := q.awaitQuiet(running, 0, 0); text(x, contract.Stdout) != "before\n" {
		t.Errorf("the open segment reads as %+v", x.Events)
	}
	if err := q.Input(t.Context(), running, ""); err != nil {
		t.Fatal(err)
	}
	x := q.settle(running)
	wantStatus(t, x, contract.StatusSucceeded)
	if text(x, contract.Stdout) != "before\nafter\n" {
		t.Errorf("events = %+v", x.Events)
	}
	if x := q.settle(past.ExecutionID); len(x.Events) != 1 || x.Events[0].Type != contract.EventGap || x.Status != contract.StatusSucceeded {
		t.Errorf("what is gone reads as %+v", x)
	}
	next := q.run("print('next')")
	wantStatus(t, next, contract.StatusSucceeded)
	q.awaitWritten()
	q.stop()
	again := reopened(t, q, dir)
	for _, want := range []contract.Execution{past, x, next} {
		got, err := again.Read(t.Context(), want.ExecutionID, ReadRequest{})
		if err != nil || got.Status != contract.StatusSucceeded || want.ExecutionID != past.ExecutionID && text(got, contract.Stdout) != text(want, contract.Stdout) {
			t.Errorf("after a restart: %+v, %v", got, err)
		}
	}
	if id, err := again.Submit(contract.Submit{RequestID: past.RequestID, Code: "print('gone')"}); err != nil || id != past.ExecutionID {
		t.Errorf("the same request_id again: %q, %v", id, err)
	}
}

// A run whose start can't be written down does not run: a later executor would call
// it one that never began. What else can't be written is written once it can.
func TestStateThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	q := start(t, stacks.Old(t), Config{Dir: dir})
	q.run("n = 0")
	running := q.submit("input()", 0)
	wantStatus(t, q.settle(running), contract.StatusWaitingForInput)
	queued := q.submit("n += 1", 0)
	for _, id := range []string{running, queued} { // a file where the folder was
		if err := os.RemoveAll(filepath.Join(dir, id)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, id), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Input(t.Context(), running, ""); err != nil {
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
	q.awaitWritten()
	for id, want := range map[string]contract.Status{running: contract.StatusSucceeded, queued: contract.StatusFailed} {
		if line, err := readState(filepath.Join(dir, id)); err != nil || line.Status != want {
			t.Errorf("%s on disk: %s, %v", id, line.Status, err)
		}
	}
}

func (b *bench) awaitWritten() {
	b.t.Helper()
	limit := time.After(20 * time.Second)
	for b.reserve.waiting() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-limit:
			b.t.Fatal("it is not written down")
		}
	}
}
