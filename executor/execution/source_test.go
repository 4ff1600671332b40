package execution

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/contract"
)

// fakeSource is a source whose executions end at once.
type fakeSource struct {
	name string
	size int
	lost string
}

func (*fakeSource) Begin(string) Turn    { return Turn{} }
func (*fakeSource) Ended(Outcome) Next   { return Next{} }
func (*fakeSource) Changed()             {}
func (f *fakeSource) Lost(reason string) { f.lost = reason }
func (f *fakeSource) Size() int          { return f.size }

// join is Join without its checks, which need a kernel.
func (q *Queue) join(caller string, f *fakeSource) { q.addLocked(&waiter{Source: f, caller: caller}) }

// turn has the next of the queue run at once, and returns its name. A source wants another
// turn after it.
func (q *Queue) turn() string {
	w := q.next()
	defer q.yield()
	if f, ok := w.Source.(*fakeSource); ok {
		q.goOn(w, Next{Wanted: true})
		return f.name
	}
	w.single.Finish(contract.StatusSucceeded, "", 0)
	return w.Source.(*single).code
}

func (q *Queue) turnNames(n int) string {
	var names []string
	for range n {
		names = append(names, q.turn())
	}
	return strings.Join(names, " ")
}

func TestOtherRunsGoBetweenTheTurnsOfASource(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		add  func(q *Queue)
		want string
	}{
		"runs of the same caller": {func(q *Queue) {
			for n := range 3 {
				q.add(t, fmt.Sprint("r", n), "a")
			}
		}, "r0 A r1 A r2 A"},
		"three sources of one caller, one of another": {func(q *Queue) {
			q.join("a", &fakeSource{name: "B"})
			q.join("a", &fakeSource{name: "C"})
			q.join("b", &fakeSource{name: "D"})
		}, "A D B D C D A D"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := unstarted(t)
			q.life = "kernel"
			q.join("a", &fakeSource{name: "A"})
			test.add(q)
			if got := q.turnNames(len(strings.Fields(test.want))); got != test.want {
				t.Errorf("the turns are %s, want %s", got, test.want)
			}
		})
	}
}

func TestTheCodeOfSourcesIsCountedButTheyTakeNoPlaces(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	q.join("a", &fakeSource{size: maxQueuedCode})
	for caller, room := range map[string]int{"a": 0, "b": maxQueuedCode} {
		if err := q.fullLocked(caller, room, true); err != nil {
			t.Errorf("caller %s at the bound: %v", caller, err)
		}
		if err := q.Room(caller, room+1); !errors.Is(err, ErrQueuedCode) {
			t.Errorf("caller %s one past the bound: %v", caller, err)
		}
	}
	q = unstarted(t)
	for n := range 2 * DefaultLimits.Queue {
		q.join(fmt.Sprint(n), &fakeSource{})
	}
	if err := q.fullLocked("a", 1, true); err != nil {
		t.Errorf("behind many sources: %v", err)
	}
}

func TestASourceThatWaitsForALaterTurnKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := unstarted(t)
		q.life = "kernel"
		q.join("a", &fakeSource{name: "A"})
		q.goOn(q.next(), Next{Wanted: true, After: time.Minute})
		q.yield()
		q.add(t, "r", "b")
		if got := q.turn(); got != "r" || q.next() != nil {
			t.Errorf("the first turn is that of %s", got)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if len(q.wake) != 1 {
			t.Error("nobody is told that its time has come")
		}
		if got := q.turn(); got != "A" {
			t.Errorf("when its time has come, the turn is that of %s", got)
		}
	})
}
