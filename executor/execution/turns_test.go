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

// add makes an execution wait, behind the one that is named after, if any.
func (q *Queue) add(t *testing.T, name, caller string, after ...string) {
	t.Helper()
	q.addSubmit(t, caller, contract.Submit{RequestID: name, AfterRequestID: strings.Join(after, "")})
}

// addSubmit is Submit without its checks, which need a kernel. The code is the request_id.
func (q *Queue) addSubmit(t *testing.T, caller string, s contract.Submit) (id string) {
	t.Helper()
	s.Code = s.RequestID
	if id, err := q.journal.Submitted(s); id != "" || err != nil {
		return id
	}
	record, err := q.journal.Create(s)
	if err != nil {
		t.Fatal(err)
	}
	q.enqueueLocked(&submission{Record: record, code: s.Code, caller: caller, follows: q.followedBy(s)})
	q.updateLocked()
	return record.ID
}

// addChain makes a chain of n executions wait: name1, name2 and so on.
func (q *Queue) addChain(t *testing.T, name, caller string, n int) {
	t.Helper()
	q.add(t, name+"1", caller)
	for i := 2; i <= n; i++ {
		q.add(t, fmt.Sprint(name, i), caller, fmt.Sprint(name, i-1))
	}
}

// begin takes the next execution out of the queue and finishes it.
func (q *Queue) begin() {
	s := q.next()
	_ = s.Update(func(x *contract.Execution) { x.KernelID = q.life })
	s.Finish(contract.StatusSucceeded, "", 0)
	q.yield()
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

// Each case begins with four waiting cells of a notebook, of which the first one runs.
func TestOtherRunsGoBetweenTheCellsOfAChain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		add  func(q *Queue)
		want string
	}{
		"the same caller": {func(q *Queue) { q.add(t, "q", "a") }, "q a2 a3 a4"},
		"many of the same caller": {func(q *Queue) {
			for n := range 4 {
				q.add(t, fmt.Sprint("q", n), "a")
			}
		}, "q0 a2 q1 a3 q2 a4 q3"},
		"other callers": {func(q *Queue) {
			q.add(t, "b", "b")
			q.add(t, "c", "c")
		}, "b c a2 a3 a4"},
		"another notebook":                    {func(q *Queue) { q.addChain(t, "b", "b", 3) }, "b1 a2 a3 b2 a4 b3"},
		"another notebook of the same caller": {func(q *Queue) { q.addChain(t, "b", "a", 3) }, "b1 a2 a3 a4 b2 b3"},
		"another caller continues the chain":  {func(q *Queue) { q.add(t, "b", "b", "a4") }, "a2 a3 a4 b"},
		"a second branch":                     {func(q *Queue) { q.add(t, "b", "b", "a2") }, "a2 a3 b a4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := unstarted(t)
			q.addChain(t, "a", "a", 4)
			q.begin()
			test.add(q)
			if got := q.order(); got != test.want {
				t.Errorf("the order is %s, want %s", got, test.want)
			}
		})
	}
}

// Quick runs of which each is submitted while the one before it runs do not keep a notebook
// from going on, nor does it keep them.
func TestAStreamOfQuickRunsAndAChainAlternate(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	q.addChain(t, "a", "a", 4)
	var got []string
	for n := range 6 {
		q.add(t, fmt.Sprint("q", n), "a")
		got = append(got, q.pending[0].code)
		q.begin()
	}
	if got := strings.Join(got, " "); got != "a1 q0 a2 q1 a3 q2" {
		t.Errorf("the order is %s", got)
	}
}

func TestAChainTakesPlacesAsOtherRunsDo(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	for n := range 4 {
		q.addChain(t, fmt.Sprint("notebook", n, "-"), fmt.Sprint(n), 16)
	}
	for caller, want := range map[string]bool{"0": true, "3": true, "other": false} {
		if got := q.fullLocked(caller, 1) != nil; got != want {
			t.Errorf("four notebooks wait: full for caller %s: %v", caller, got)
		}
	}
	q.add(t, "quick", "other")
	if got := q.pending[4].code; got != "quick" {
		t.Errorf("after the first cells comes %s", got)
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
