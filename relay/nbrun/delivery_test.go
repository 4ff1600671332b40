package nbrun

import (
	"testing"
	"time"
)

// A relay that is killed right before it answers has told nobody that the run has ended.
func TestARunWhoseLastAnswerWasLostDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	sources := []src{src(says("c0")), src(says("c1"))}
	b := write(t, sources...)
	b.lost = true
	b.finish(b.spec(), m, StatusSucceeded)
	for range 2 { // the answer of a repetition may be lost, too
		again := b.advance(b.spec(), m, time.Minute)
		if again.err != nil || again.Outcome.Status != StatusSucceeded || again.CanContinue || again.Run.Counts()[CellSucceeded] != 2 || len(again.Notes) != 1 {
			t.Errorf("%v, %+v", again.err, again.Outcome)
		}
	}
	m.ranIs("c0", "c1")
	b.lost = false
	b.advance(b.spec(), m, time.Minute)
	m.ranIs("c0", "c1")
	b.finish(b.spec(), m, StatusSucceeded) // it was answered
	m.ranIs("c0", "c1", "c0", "c1")
}

func TestARunWhoseLastAnswerWasLostRunsAgainAfterAnEditOrWithOtherArguments(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")), src(says("c1")))
	b.lost = true
	b.finish(b.spec(), m, StatusSucceeded)
	b.rewrite(src(says("c0")), src(says("edited")))
	b.finish(b.spec(), m, StatusSucceeded)
	m.ranIs("c0", "c1", "c0", "edited")
	one := b.spec()
	one.Cells = "0"
	b.finish(one, m, StatusSucceeded)
	m.ranIs("c0", "c1", "c0", "edited", "c0")
}
