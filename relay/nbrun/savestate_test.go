package nbrun

import "testing"

// A kernel dies after the cell whose variables were saved: they are restored, and the cells up to
// it do not run again.
func TestInANewKernelTheRunContinuesAfterTheSavedState(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	dies := "import os\nif open('ran').read().count('c2') == 1: os.kill(os.getpid(), 9)"
	b := write(t, src(says("c0")+"\nx = 20"), src("save-state| "+says("c1")+"\nx += 1"), src(says("c2")+"\n"+dies), src(says("c3")+"\nprint(2 * x)"))
	s := b.spec()
	s.StateName = "state of the test"
	got := b.advance(s, m, long, func(o *Options) { o.States = KernelStates(m.Client, b.dir, "") })
	if got.err != nil || got.Status() != StatusSucceeded {
		t.Fatalf("%v %s %s %q", got.err, got.Status(), got.cells(), got.Outcome.Notes)
	}
	m.ranIs("c0", "c1", "c2", "c2", "c3")
	if b.outputs("c3") != "42\n" {
		t.Errorf("it shows %q", b.outputs("c3"))
	}
	if got.Run.Saved == nil || got.Run.Saved.Cell != "c1" {
		t.Errorf("saved: %+v", got.Run.Saved)
	}
}
