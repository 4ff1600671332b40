package nbrun

import (
	"strings"
	"testing"
)

// A view of an array, a file that is appended to, a function that is called through a dict: what
// depends on the edited cell can't be told from names, so everything below it runs again.
func TestDirtyRunsFromTheFirstChangedCellToTheEnd(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	cells := []src{src(says("c0") + "\na = [1]"), src(says("c1") + "\nb = {'a': a}"), src(says("c2") + "\nprint(b['a'])")}
	b := write(t, cells...)
	b.finish(b.spec(), m, StatusSucceeded)
	dirty := b.spec()
	dirty.Cells = "dirty"
	got := b.finish(dirty, m, StatusSucceeded)
	if len(got.Run.Plan) != 0 || !strings.Contains(strings.Join(got.Outcome.Notes, ""), "nothing to run") {
		t.Errorf("nothing changed: %s, %q", got.cells(), got.Outcome.Notes)
	}
	cells[1] = src(says("c1") + "\na[0] = 5\nb = {'a': a}")
	b.rewrite(cells...)
	b.finish(dirty, m, StatusSucceeded).cellsAre(t, "c1:succeeded c2:succeeded")
	m.ranIs("c0", "c1", "c2", "c1", "c2")
	if b.outputs("c2") != "[5]\n" {
		t.Errorf("it shows %q", b.outputs("c2"))
	}
}
