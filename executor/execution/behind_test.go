package execution

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// blocked reads a queued execution as a submit with BehindInput does.
func (b *bench) blocked(id string) contract.Execution {
	b.t.Helper()
	x, err := b.journal.Read(b.t.Context(), id, journal.ReadRequest{Wait: time.Minute, UntilEnd: true, BehindInput: true})
	if err != nil {
		b.t.Fatal(err)
	}
	return x
}

func wantBehind(t *testing.T, x contract.Execution, want *contract.Behind) {
	t.Helper()
	if diff := cmp.Diff(want, x.Behind); diff != "" {
		t.Errorf("%s: behind (-want +got):\n%s", x.Status, diff)
	}
}

func TestAQueuedRunSaysWhatItWaitsFor(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	signal := filepath.Join(t.TempDir(), "go")
	wait := fmt.Sprintf("import os, time\nwhile not os.path.exists(%q): time.sleep(.01)\nos.remove(%q)\n", signal, signal)
	proceed := func() {
		if err := os.WriteFile(signal, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	holder := q.submit("print('on')\n"+wait+"input('a? ')\nimport getpass\ngetpass.getpass('b' * 5000)\n"+wait, 0)
	q.awaitEvent(holder, 0)
	first, second := q.submit("1", 0), q.submit("2", 0)
	for _, id := range []string{first, second} {
		x := read(t, q.journal, id)
		wantBehind(t, x, &contract.Behind{ExecutionID: holder, Status: contract.StatusRunning})
	}
	go proceed()
	want := &contract.Behind{ExecutionID: holder, Status: contract.StatusWaitingForInput, Prompt: "a? "}
	for _, id := range []string{first, second} { // read while the holder runs: wakes the reader
		wantBehind(t, q.blocked(id), want)
	}
	wantBehind(t, read(t, q.journal, q.submit("3", 0)), want)
	if err := q.Input(t.Context(), holder, contract.Input{Text: "A"}); err != nil {
		t.Fatal(err)
	}
	openPrompt(t, q.settle(holder))
	x := q.blocked(second)
	if b := x.Behind; b == nil || !b.Password || len(b.Prompt) != contract.MaxBehindPrompt || !strings.HasSuffix(b.Prompt, "b…") {
		t.Errorf("behind the password: %+v", b)
	}
	if err := q.Input(t.Context(), holder, contract.Input{Text: "B", Password: true}); err != nil {
		t.Fatal(err)
	}
	wantBehind(t, read(t, q.journal, second), &contract.Behind{ExecutionID: holder, Status: contract.StatusRunning})
	proceed()
	for _, id := range []string{first, second} {
		x := q.settle(id)
		wantStatus(t, x, contract.StatusSucceeded)
		wantBehind(t, x, nil)
	}
}

// A reader that does not ask for it goes on waiting: it could do nothing else.
func TestAReaderThatDoesNotAskSleepsOnBehindAPrompt(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	holder := q.submit("input()", 0)
	openPrompt(t, q.settle(holder))
	id := q.submit("1", 0)
	began := time.Now()
	x, err := q.journal.Read(t.Context(), id, journal.ReadRequest{Wait: 200 * time.Millisecond, UntilEnd: true})
	if err != nil || x.Status != contract.StatusQueued || time.Since(began) < 200*time.Millisecond {
		t.Errorf("%s after %s, %v", x.Status, time.Since(began), err)
	}
	if x, err := q.Interrupt(t.Context(), id); err != nil || x.Behind != nil {
		t.Errorf("cancelled: %+v, %v", x.Behind, err)
	}
}

// What a queued run waits for means nothing to the next executor.
func TestTheDiskDoesNotHoldWhatAQueuedRunWaitsFor(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	q := newBench(t, stacks.Old(t), settings{dir: dir})
	holder := q.submit("input()", 0)
	openPrompt(t, q.settle(holder))
	id := q.submit("1", 0)
	wantBehind(t, read(t, q.journal, id), &contract.Behind{ExecutionID: holder, Status: contract.StatusWaitingForInput})
	q.stop()
	wantBehind(t, read(t, q.journal, id), nil)
	wantBehind(t, read(t, reopened(t, dir), id), nil)
}
