package nbrun

import (
	"strings"
	"testing"
)

func TestAfterAFailureOnlyDependentCellsAreSkipped(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, ten()...)
		got := b.finish(b.spec(), vm, StatusFailed)
		got.cellsAre(t, "c0:succeeded c1:succeeded c2:failed c3:skipped c4:succeeded c5:succeeded c6:succeeded c7:succeeded c8:succeeded c9:skipped")
		m.ranIs("c0", "c1", "c2", "c4", "c5", "c6", "c7", "c8")
		for handle, want := range map[string]Because{"c3": {"c2", []string{"v2"}}, "c9": {"c3", []string{"v3"}}} {
			because := got.Run.cell(handle).SkippedBecause
			if len(because) != 1 || because[0].Cell != want.Cell || strings.Join(because[0].Names, " ") != want.Names[0] {
				t.Errorf("%s was skipped because of %v, want %v", handle, because, want)
			}
		}
		if text := b.outputs("c2"); !strings.Contains(text, "ZeroDivisionError") {
			t.Errorf("the failed cell shows %q", text)
		}
		if len(got.Failed) != 1 || got.Failed[0].Attempts[0].Error.EName != "ZeroDivisionError" || got.Record.Report().Success {
			t.Errorf("failed cells %+v", got.Failed)
		}
	})
}

func TestForcedCellsRunAlthoughTheyDependOnAFailure(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, "x = 1 / 0", src("force-execute| "+says("c1")+"\nx"), src(says("c2")+"\nx"), src(says("c3")+"\nx"))
		s := b.spec()
		s.Force = "c3"
		got := b.finish(s, vm, StatusFailed)
		got.cellsAre(t, "c0:failed c1:failed c2:skipped c3:failed")
		m.ranIs("c1", "c3")
	})
}

func TestACellThatTakesTooLongIsInterruptedAndNotRetried(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src("timeout=0.3| "+says("c0")+"\nimport time; time.sleep(60); x = 1"), src(says("c1")), src(says("c2")+"\nx"))
		got := b.finish(b.spec(), vm, StatusFailed)
		got.cellsAre(t, "c0:timed_out c1:succeeded c2:skipped")
		m.ranIs("c0", "c1")
	})
}

func TestDirtyCellsAreFoundAndRunAgain(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")+"\nx = 1"), src(says("c1")+"\ny = x"), src(says("c2")+"\nz = 1"))
	b.finish(b.spec(), m, StatusSucceeded)
	dirty := b.spec()
	dirty.Cells = "dirty"
	got := b.finish(dirty, m, StatusSucceeded)
	m.ranIs("c0", "c1", "c2")
	if len(got.Run.Plan) != 0 || !strings.Contains(strings.Join(got.Outcome.Notes, ""), "nothing to run") {
		t.Errorf("plan %s, notes %q", got.cells(), got.Outcome.Notes)
	}
	b.rewrite(src(says("c0")+"\nx = 1 # only a comment"), src(says("c1")+"\ny = x + 1"), src(says("c2")+"\nz = 1"))
	plan := dirty
	plan.DryRun = true
	planned := b.advance(plan, m, long)
	if planned.err != nil || planned.Plan[0].Run || !planned.Plan[1].Run || !planned.Plan[2].Run || !strings.Contains(planned.Plan[1].Why, "present code") {
		t.Fatalf("%v %+v", planned.err, planned.Plan)
	}
	stale := b.spec()
	stale.Cells = "stale"
	b.finish(stale, m, StatusSucceeded)
	m.ranIs("c0", "c1", "c2", "c1")
}
