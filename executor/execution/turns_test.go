package execution

import (
	"fmt"
	"strings"
	"testing"
)

// line is a queue without a kernel, and who waits in it.
func (q *Queue) line() string {
	var names []string
	for _, e := range q.pending {
		names = append(names, e.id)
	}
	return strings.Join(names, " ")
}

func TestCallersTakeTurns(t *testing.T) {
	t.Parallel()
	q := &Queue{cfg: Config{Limits: Limits{Queue: 64}}}
	for _, id := range []string{"a1", "a2", "a3", "b1", "c1", "b2"} {
		q.enqueue(&entry{id: id, changed: make(chan struct{})}, id[:1])
	}
	if got := q.line(); got != "a1 b1 c1 a2 b2 a3" {
		t.Errorf("the order is %s", got)
	}
	q.renumber()
	for n, e := range q.pending {
		if e.now.QueuePosition != n {
			t.Errorf("%s has position %d, want %d", e.id, e.now.QueuePosition, n)
		}
	}
	q.pending, q.round = q.pending[1:], q.pending[0].round // a1 runs
	q.enqueue(&entry{id: "d1", changed: make(chan struct{})}, "d")
	if got := q.line(); got != "b1 c1 a2 b2 d1 a3" {
		t.Errorf("with a newcomer the order is %s", got)
	}
}

func TestACallerWithManyWaitingKeepsNoOtherOut(t *testing.T) {
	t.Parallel()
	q := &Queue{cfg: Config{Limits: Limits{Queue: 64}}}
	for n := range 64 {
		if q.full("greedy") {
			t.Fatalf("full at %d", n)
		}
		q.enqueue(&entry{changed: make(chan struct{})}, "greedy")
	}
	if !q.full("greedy") {
		t.Error("a 65th is accepted of the one that fills the queue")
	}
	for n := range 64 {
		caller := fmt.Sprint("modest ", n)
		if q.full(caller) {
			t.Fatalf("%s is kept out", caller)
		}
		q.enqueue(&entry{changed: make(chan struct{})}, caller)
		if !q.full(caller) {
			t.Fatalf("%s gets a second place", caller)
		}
	}
	if !q.full("one more") {
		t.Error("the queue has no end")
	}
}
