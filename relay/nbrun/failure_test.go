package nbrun

import (
	"fmt"
	"strings"
	"testing"

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

func TestAfterAFailureARunStops(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, ten()...)
	got := b.finish(b.spec(), m, StatusFailed)
	got.cellsAre(t, "c0:succeeded c1:succeeded c2:failed c3:not_run c4:not_run c5:not_run c6:not_run c7:not_run c8:not_run c9:not_run")
	m.ranIs("c0", "c1", "c2")
	if why := got.Run.cell("c4").Why; !strings.Contains(why, "c2") || got.CanContinue {
		t.Errorf("why it was not run: %q, can continue %v", why, got.CanContinue)
	}
	if text := b.outputs("c2"); !strings.Contains(text, "ZeroDivisionError") {
		t.Errorf("the failed cell shows %q", text)
	}
}

func TestAfterAFailureARunMaySkipItsDependants(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, append(ten(), src("force-execute| "+says("c10")+"\nv3 if 'v3' in globals() else 0"))...)
	s := b.spec()
	s.OnError = SkipDependants
	got := b.finish(s, m, StatusFailed)
	got.cellsAre(t, "c0:succeeded c1:succeeded c2:failed c3:skipped c4:succeeded c5:succeeded c6:succeeded c7:succeeded c8:succeeded c9:skipped c10:succeeded")
	if c := got.Run.Plan[9]; c.Why != "it uses v3, which the cell with id c3 would have made" {
		t.Errorf("%+v", c)
	}
}

// Which cells need which, by their names alone.
func TestNeedsOfCells(t *testing.T) {
	cells := []named{
		{"imports", Facts{Makes: []string{"np", "f"}, Sure: []string{"np", "f"}}, false, false},
		{"binds", Facts{Makes: []string{"x"}, Sure: []string{"x"}}, false, false},
		{"calls", Facts{Reads: []string{"f", "np", "x"}, Makes: []string{"x"}}, false, false},
		{"tolerated", Facts{Reads: []string{"x"}, Makes: []string{"t"}}, true, false},
		{"reads", Facts{Reads: []string{"np", "t", "x"}}, false, false},
		{"unknown", Facts{}, false, false},
		{"maybe", Facts{Makes: []string{"x"}}, false, false},
		{"again", Facts{Reads: []string{"x"}, Makes: []string{"x"}, Sure: []string{"x"}}, false, false},
		{"last", Facts{Reads: []string{"x"}}, false, false},
		{"forced", Facts{Reads: []string{"x"}, Makes: []string{"x"}}, false, true}, // it is not skipped for those before it
		{"after", Facts{Reads: []string{"x"}}, false, false},
	}
	got := needsOf(cells)
	for handle, want := range map[string]string{
		"imports": "[]", "binds": "[]", "calls": "[{imports [f np]} {binds [x]}]", "tolerated": "[{calls [x]}]",
		"reads": "[{imports [np]} {calls [x]}]", "unknown": "[]", "maybe": "[]",
		"again": "[{calls [x]} {maybe [x]}]", "last": "[{again [x]}]", "forced": "[{again [x]}]", "after": "[{again [x]} {forced [x]}]",
	} {
		if text := fmt.Sprint(got[handle]); text != want {
			t.Errorf("%s needs %s, want %s", handle, text, want)
		}
	}
}

func TestExpectedFailuresAndTagsOfCells(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src("raises-exception| "+says("c0")+"\n1 / 0"), src(says("c1")), src("skip-execution| "+says("c2")), src("timeout=NaN retries=many| "+says("c3")))
	got := b.finish(b.spec(), m, StatusSucceeded)
	if notes := strings.Join(got.Outcome.Notes, "\n"); !strings.Contains(notes, `cell 3 (id c3) has the tag "timeout=NaN"`) || !strings.Contains(notes, `the tag "retries=many"`) {
		t.Errorf("notes %q", notes)
	}
	got.cellsAre(t, "c0:expected_failure c1:succeeded c2:not_run c3:succeeded")
	m.ranIs("c0", "c1", "c3")
	if got.Run.cell("c0").Attempts != 1 {
		t.Errorf("attempts: %+v", got.Run.cell("c0").Attempts)
	}
}

// Without being asked, or against a cell's tag, nothing runs twice: what the first attempt did stays.
func TestATransientErrorIsNotRetriedUnasked(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	posts := "log.append('posted')\nprint(log)\nif len(log) < 2: raise ConnectionError('reset')"
	for _, test := range []struct {
		tag     string
		retries int
	}{{"", 0}, {"no-retry| ", 2}} {
		b := write(t, "log = []", src(test.tag+posts), src(says("c2")))
		s := b.spec()
		s.Retries = test.retries
		b.finish(s, m, StatusFailed).cellsAre(t, "c0:succeeded c1:failed c2:not_run")
		if text := b.outputs("c1"); !strings.HasPrefix(text, "['posted']\n|ConnectionError") {
			t.Errorf("it shows %q", text)
		}
	}
	m.ranIs()
}

// The tutorials' case: a fetch that fails, then works.
func TestACellWithTransientErrorsIsRetriedIfAsked(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	flaky := "retries=2| " + says("c1") + "\nif open('ran').read().count('c1') < 2: raise ConnectionResetError('by peer')\nx = 5"
	b := write(t, src(says("c0")), src(flaky), src(says("c2")+"\nprint(x)"))
	got := b.finish(b.spec(), m, StatusSucceeded)
	m.ranIs("c0", "c1", "c1", "c2")
	if c := got.Run.cell("c1"); c.Attempts != 2 || c.Last.Error != nil {
		t.Errorf("%+v", c)
	}
	if notes := strings.Join(got.Run.Notes, "\n"); !strings.Contains(notes, "cell 1 (id c1) ran 2 times") || !strings.Contains(notes, "earlier attempts did was not undone") {
		t.Errorf("notes %q", notes)
	}
	if b.outputs("c1") != "" || b.outputs("c2") != "5\n" {
		t.Errorf("outputs %q and %q", b.outputs("c1"), b.outputs("c2"))
	}
}
