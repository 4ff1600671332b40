package nbrun

import (
	"testing"

	"colabrelay/shared/stacks"
)

func TestPlainNotebookRunsAndItsOutputsAreInTheFile(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		m := borrow(t, s)
		b := write(t, "x = 20\nprint('one')", "", src("x += 1\n"+says("b")+";"), "print(2 * x)\nx")
		got := b.finish(b.spec(), m, StatusSucceeded)
		got.cellsAre(t, "c0:succeeded c2:succeeded c3:succeeded")
		if one, last := b.outputs("c0"), b.outputs("c3"); one != "one\n" || last != "42\n|21" {
			t.Errorf("outputs %q and %q", one, last)
		}
		m.ranIs("b")
		if got.printed != "one\n42\n" || got.CanContinue || got.Run.Job != nil {
			t.Errorf("printed %q, can continue %v, job %+v", got.printed, got.CanContinue, got.Run.Job)
		}
	})
}
