package execution

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
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

// add makes an execution wait. Its code is its name.
func (q *Queue) add(t *testing.T, name, caller string) {
	t.Helper()
	s := contract.Submit{RequestID: name, Code: name} // Submit checks more, which needs a kernel
	record, err := q.journal.Create(s)
	if err != nil {
		t.Fatal(err)
	}
	q.enqueueLocked(&submission{Record: record, code: s.Code, caller: caller})
	q.updateLocked()
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
		if q.fullLocked("greedy", 1) != nil {
			t.Fatalf("full at %d", n)
		}
		add("greedy")
	}
	if q.fullLocked("greedy", 1) == nil {
		t.Error("a 65th execution of the caller that fills the queue is accepted")
	}
	for n := range 64 {
		caller := fmt.Sprint("modest ", n)
		if q.fullLocked(caller, 1) != nil {
			t.Fatalf("%s is kept out", caller)
		}
		add(caller)
		if q.fullLocked(caller, 1) == nil {
			t.Fatalf("%s gets a second place", caller)
		}
	}
	if q.fullLocked("one more", 1) == nil {
		t.Error("the queue has no bound")
	}
}

// runTurns runs n executions and counts them by caller. Each time that one has begun, submit
// may make others wait, and gets how many executions of each caller wait or run.
func (q *Queue) runTurns(n int, submit func(waiting map[string]int)) map[string]int {
	count := map[string]int{}
	for range n {
		s := q.next()
		count[s.caller]++
		waiting := map[string]int{s.caller: 1}
		for _, p := range q.pending {
			waiting[p.caller]++
		}
		submit(waiting)
		s.Finish(contract.StatusSucceeded, "", 0)
		q.yield()
	}
	return count
}

// A caller that waits for each answer before it submits again is always late: the next run has
// begun meanwhile. It must not lose its turn by that.
func TestCallersWithOneCallGetAsManyTurnsAsThoseWithMany(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]map[string]int{
		"one, two and many": {"one": 1, "two": 2, "many": 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := unstarted(t)
			id := 0
			fill := func(waiting map[string]int) {
				for _, caller := range slices.Sorted(maps.Keys(ahead)) {
					for n := waiting[caller]; n < ahead[caller]; n++ {
						q.add(t, fmt.Sprint(caller, id), caller)
						id++
					}
				}
			}
			fill(nil)
			const rounds = 40
			for caller, n := range q.runTurns(rounds*len(ahead), fill) {
				if n < rounds-1 || n > rounds+1 {
					t.Errorf("%s, which has up to %d calls, has %d of %d turns", caller, ahead[caller], n, rounds)
				}
			}
		})
	}
}

// A caller's later runs move up when some before them are cancelled.
func TestACancelledRunLeavesNoGapInItsCallersTurns(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	for _, name := range []string{"a1", "a2", "a3", "b1", "b2", "b3", "c1"} {
		q.add(t, name, name[:1])
	}
	for _, s := range slices.Clone(q.pending) {
		if s.code == "b1" || s.code == "b2" {
			q.cancel(s.ID, "cancelled before it started")
		}
	}
	if got := q.order(); got != "a1 c1 b3 a2 a3" {
		t.Errorf("after b1 and b2 were cancelled the order is %s", got)
	}
	q.add(t, "b4", "b")
	if got := q.order(); got != "a1 c1 b3 a2 b4 a3" {
		t.Errorf("with one run more the order is %s", got)
	}
}
