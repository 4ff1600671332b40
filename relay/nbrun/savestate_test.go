package nbrun

import (
	"testing"

	"colabrelay/shared/tier"
)

// The executor ends after the cell whose variables were saved: they are restored, and the cells up
// to it do not run again.
func TestInANewKernelTheRunContinuesAfterTheSavedState(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	old := start(t, oldStack(t), dir)
	b := write(t, src(says("c0")+"\nx = 20"), src("save-state| "+says("c1")+"\nx += 1"), src(says("c2")+slow), src(says("c3")+"\nprint(2 * x)"))
	s := b.spec()
	s.StateName = "state of the test"
	states := func(m *machine) func(*Options) {
		return func(o *Options) { o.States = m.Client }
	}
	b.reach(old, s, old, "c2", states(old))
	old.Kill()
	again := start(t, oldStack(t), dir)
	again.touch("go")
	got := b.advance(s, again, long, states(again))
	if got.err != nil || got.Status() != StatusSucceeded {
		t.Fatalf("%v %s %s %q", got.err, got.Status(), got.cells(), got.Outcome.Notes)
	}
	again.ranIs("c0", "c1", "c2", "c2", "c3")
	if b.outputs("c3") != "42\n" {
		t.Errorf("it shows %q", b.outputs("c3"))
	}
	if got.Run.Saved == nil || got.Run.handle(got.Run.Saved.Cell) != "c1" {
		t.Errorf("saved: %+v", got.Run.Saved)
	}
}
