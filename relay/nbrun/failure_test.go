package nbrun

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/stacks"
)

func oldStack(t *testing.T) stacks.Stack { return stacks.Old(t) }

// ten is a notebook of ten cells of which the third fails; the fourth and the last use what it
// would have made.
func ten() (sources []src) {
	for i := range 10 {
		source := fmt.Sprintf("%s\nv%d = %d", says(fmt.Sprint("c", i)), i, i)
		switch i {
		case 2:
			source = says("c2") + "\nv2 = 1 / 0"
		case 3:
			source += " + v2"
		case 9:
			source += " + v3"
		}
		sources = append(sources, src(source))
	}
	return sources
}

func TestAfterAFailureARunMayStop(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), "1 / 0", src(says("c2")), src("force-execute| "+says("c3")), src(says("c4")))
		s := b.spec()
		s.OnError, s.Force = StopOnError, "c4"
		got := b.finish(s, vm, StatusFailed)
		got.cellsAre(t, "c0:succeeded c1:failed c2:not_run c3:succeeded c4:succeeded")
		m.ranIs("c0", "c3", "c4")
		if why := got.Run.cell("c2").Why; !strings.Contains(why, "c1") {
			t.Errorf("why it was not run: %q", why)
		}
	})
}

func TestAfterAFailureARunMayGoOnWithAllCells(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, ten()...)
		s := b.spec()
		s.OnError = ContinueAfter
		got := b.finish(s, vm, StatusFailed)
		got.cellsAre(t, "c0:succeeded c1:succeeded c2:failed c3:failed c4:succeeded c5:succeeded c6:succeeded c7:succeeded c8:succeeded c9:failed")
		if len(m.ran()) != 10 {
			t.Errorf("these ran: %v", m.ran())
		}
	})
}

func TestExpectedFailuresAndTagsOfCells(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src("raises-exception| "+says("c0")+"\n1 / 0"), src(says("c1")), src("skip-execution| "+says("c2")), src("timeout=NaN| "+says("c3")))
		got := b.finish(b.spec(), vm, StatusSucceeded)
		if notes := strings.Join(got.Outcome.Notes, "\n"); !strings.Contains(notes, `cell 3 (c3) has the tag "timeout=NaN"`) {
			t.Errorf("notes %q", notes)
		}
		got.cellsAre(t, "c0:expected_failure c1:succeeded c2:not_run c3:succeeded")
		m.ranIs("c0", "c1", "c3")
		if len(got.Run.cell("c0").Attempts) != 1 {
			t.Errorf("attempts: %+v", got.Run.cell("c0").Attempts)
		}
	})
}

// The tutorials' case: a fetch that fails twice, then works.
func TestACellWithTransientErrorsIsRetried(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		flaky := says("c1") + "\nif open('ran').read().count('c1') < 3: raise ConnectionResetError('by peer')\nx = 5"
		b := write(t, src(says("c0")), src(flaky), src(says("c2")+"\nprint(x)"))
		got := b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c1", "c1", "c2")
		attempts := got.Run.cell("c1").Attempts
		if len(attempts) != 3 || attempts[0].Error.EName != "ConnectionResetError" || attempts[2].Error != nil || got.Run.Retries != 2 {
			t.Errorf("attempts %+v, %d retries", attempts, got.Run.Retries)
		}
		for i, least := range []time.Duration{800, 1600} {
			if waited := attempts[i+1].Sent.Sub(attempts[i].Sent); waited < least*time.Millisecond {
				t.Errorf("retry %d came after %s", i+1, waited)
			}
		}
		if b.outputs("c1") != "" || b.outputs("c2") != "5\n" {
			t.Errorf("outputs %q and %q", b.outputs("c1"), b.outputs("c2"))
		}
	})
}

func TestRetriesHaveBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Spec)
		cell   src
		times  int
	}{
		"of a cell":  {func(s *Spec) { s.MaxRetries = 1 }, "raise TimeoutError('late')", 2},
		"of the run": {func(s *Spec) { s.RetryBudget = 1 }, "raise TimeoutError('late')", 2},
		"by its tag": {func(*Spec) {}, "no-retry| raise TimeoutError('late')", 1},
		"by none":    {func(s *Spec) { s.RetryOn = "none" }, "raise TimeoutError('late')", 1},
		"others":     {func(*Spec) {}, "raise ValueError('no TimeoutError')", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := borrow(t, oldStack(t))
			b := write(t, test.cell, src(says("c1")))
			s := b.spec()
			test.change(&s)
			got := b.finish(s, m, StatusFailed)
			if n := len(got.Run.cell("c0").Attempts); n != test.times {
				t.Errorf("%d attempts, want %d", n, test.times)
			}
			m.ranIs("c1")
		})
	}
}
