package execution

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

// order is the code of the waiting executions.
func (q *Queue) order() string {
	var names []string
	for _, s := range q.pending {
		names = append(names, s.code)
	}
	return strings.Join(names, " ")
}

// unstarted is a queue that runs nothing.
func unstarted(t *testing.T) *Queue {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	j, err := journal.Open(journal.Config{Dir: t.TempDir(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Journal: j, Log: log})
}

// add makes an execution wait.
func (q *Queue) add(t *testing.T, name, caller string) {
	t.Helper()
	record, err := q.journal.Create(contract.Submit{RequestID: name})
	if err != nil {
		t.Fatal(err)
	}
	q.enqueueLocked(&submission{Record: record, code: name, caller: caller})
}

func TestCallersTakeTurns(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	for _, name := range []string{"a1", "a2", "a3", "b1", "c1", "b2"} {
		q.add(t, name, name[:1])
	}
	if got := q.order(); got != "a1 b1 c1 a2 b2 a3" {
		t.Errorf("the order is %s", got)
	}
	q.renumberLocked()
	for n, s := range q.pending {
		if got := s.Snapshot().QueuePosition; got != n {
			t.Errorf("%s has position %d, want %d", s.code, got, n)
		}
	}
	q.pending, q.round = q.pending[1:], q.pending[0].round // a1 runs
	q.add(t, "d1", "d")
	if got := q.order(); got != "b1 c1 a2 b2 d1 a3" {
		t.Errorf("with a new caller the order is %s", got)
	}
}

func TestACallerWithManyExecutionsKeepsNoOtherOut(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	add := func(caller string) { q.pending = append(q.pending, &submission{caller: caller, round: 1}) }
	for n := range 64 {
		if q.fullLocked("greedy") {
			t.Fatalf("full at %d", n)
		}
		add("greedy")
	}
	if !q.fullLocked("greedy") {
		t.Error("a 65th execution of the caller that fills the queue is accepted")
	}
	for n := range 64 {
		caller := fmt.Sprint("modest ", n)
		if q.fullLocked(caller) {
			t.Fatalf("%s is kept out", caller)
		}
		add(caller)
		if !q.fullLocked(caller) {
			t.Fatalf("%s gets a second place", caller)
		}
	}
	if !q.fullLocked("one more") {
		t.Error("the queue has no bound")
	}
}
