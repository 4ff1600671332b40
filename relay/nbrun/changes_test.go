package nbrun

import (
	"strings"
	"testing"
	"time"
)

// slow waits until the test writes the file "go" into the working directory.
const slow = "\nimport os, time\nwhile not os.path.exists('go'): time.sleep(.01)"

func TestOutputsOfACellEditedWhileItRanAreNotInTheNotebook(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow+"\nprint('old')"), src(says("c2")))
		b.reach(m, b.spec(), vm, "c1")
		b.rewrite(src(says("c0")+"#"), "print('new')", src(says("c2")))
		m.touch("go")
		got := b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c2")
		if text := b.outputs("c1"); text != "" {
			t.Errorf("the edited cell shows %q", text)
		}
		if notes := strings.Join(got.Outcome.Notes, "\n"); !strings.Contains(notes, "cell 0 (id c0) was edited after it had run") || !strings.Contains(notes, "cell 1 (id c1) was edited while it ran") {
			t.Errorf("notes %q", notes)
		}
		if state := got.Record.state(&cell{handle: "c1", source: hash("print('new')")}); state != Dirty {
			t.Errorf("its state is %s", state)
		}
	})
}

func TestCellsInsertedDeletedAndMovedMeanwhile(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")), src(says("c3")), src(says("c4")))
		b.reach(m, b.spec(), vm, "c1")
		b.rewriteCells(
			cellJSON("above", src(says("above"))), cellJSON("c0", src(says("c0"))), cellJSON("c1", src(says("c1")+slow)),
			cellJSON("c4", src(says("c4"))), cellJSON("new", src(says("new"))), cellJSON("c2", src(says("c2"))),
		)
		b.advance(b.spec(), vm, 300*time.Millisecond)
		m.touch("go")
		got := b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c4", "new", "c2")
		if notes := strings.Join(got.Run.Notes, "\n"); !strings.Contains(notes, "above cells that have run") {
			t.Errorf("notes %q", notes)
		}
		if why := got.Run.cell("c3").Why; !strings.Contains(why, "deleted") {
			t.Errorf("the deleted cell: %q", why)
		}
	})
}
