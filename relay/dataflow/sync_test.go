package dataflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

// syncCases: a history of runs "cell=source", where "cell!source" failed, and the notebook
// now, as "cell=source". want are the reasons, and names that linger.
var syncCases = []struct {
	name           string
	runs, notebook []string
	want           string
	from           int // the first cell of cells="dirty"; -1 for none
	linger         string
}{
	{"a new kernel", nil, []string{"a=x = 1", "b=y = 2"}, "never_run never_run", 0, ""},
	{"all ran", []string{"a=x = 1", "b=y = x"}, []string{"a=x = 1", "b=y = x"}, "- -", -1, ""},
	{"all ran twice", []string{"a=x = 1", "b=x += 1", "a=x = 1", "b=x += 1"}, []string{"a=x = 1", "b=x += 1"}, "- -", -1, ""},
	{"a loop ran twice", []string{"a=for i in x:\n    t = i", "a=for i in x:\n    t = i"}, []string{"a=for i in x:\n    t = i"}, "-", -1, ""},
	{"comments", []string{"a=x = 1"}, []string{"a=x = (1) # one"}, "-", -1, ""},
	{"edited", []string{"a=x = 1", "b=y = x", "c=z = 1"}, []string{"a=x = 2", "b=y = x", "c=z = 1"}, "edited depends -", 0, ""},
	{"edited and not parsed", []string{"a=x = ("}, []string{"a=x = [", "b=y = 1"}, "edited never_run", 0, ""},
	{"the last one edited", []string{"a=x = 1", "b=y = x"}, []string{"a=x = 1", "b=y = 2"}, "- edited", 1, ""},
	{"an edited cell binds less", []string{"a=x = w = 1", "b=y = x"}, []string{"a=w = 1", "b=y = x"}, "edited deleted", 0, "x"},
	{"failed", []string{"a=x = 1", "b!y = x"}, []string{"a=x = 1", "b=y = x"}, "- failed", 1, ""},
	{"failed after it had succeeded", []string{"a=x = 1", "b=y = x", "b!y = x"}, []string{"a=x = 1", "b=y = x"}, "- failed", 1, ""},
	{"a cell above ran again", []string{"a=x = 1", "b=y = x", "c=z = 1", "a=x = 1"}, []string{"a=x = 1", "b=y = x", "c=z = 1"}, "- out_of_order -", 1, ""},
	{"a cell below ran again", []string{"a=x = 1", "b=y = x", "b=y = x"}, []string{"a=x = 1", "b=y = x"}, "- -", -1, ""},
	{"a cell that changes a value ran again", []string{"a=x = 1", "b=x += 1", "b=x += 1"}, []string{"a=x = 1", "b=x += 1"}, "overwritten out_of_order", 0, ""},
	{"a cell below that changes what it must run on", []string{"a=x = []", "b=y = len(x)", "c=x.append(1)"}, []string{"a=x = []", "b=y = len(x) + 1", "c=x.append(1)"}, "overwritten edited depends", 0, ""},
	{"ran in another order", []string{"b=x = 2", "a=x = 1"}, []string{"a=x = 1", "b=x = 2"}, "- overwritten", 1, ""},
	{"moved where it matters", []string{"a=x = 1", "b=y = x", "c=x = 2"}, []string{"a=x = 1", "c=x = 2", "b=y = x"}, "- - out_of_order", 2, ""},
	{"moved where it does not matter", []string{"a=x = 1", "b=y = 2"}, []string{"b=y = 2", "a=x = 1"}, "- -", -1, ""},
	{"inserted", []string{"a=x = 1", "b=y = x"}, []string{"a=x = 1", "n=x = 5", "b=y = x"}, "- never_run depends", 1, ""},
	{"deleted", []string{"a=x = 1", "b=y = x", "c=z = 1"}, []string{"b=y = x", "c=z = 1"}, "deleted -", 0, "x"},
	{"deleted without readers", []string{"a=x = 1", "b=y = 2"}, []string{"b=y = 2"}, "-", -1, "x"},
	{"deleted, and another cell writes the name", []string{"a=x = 1", "b=x = 2", "c=y = x"}, []string{"a=x = 1", "c=y = x"}, "overwritten out_of_order", 0, ""},
	{"a function's global", []string{"a=def f(): return g", "b=g = 1", "c=y = f()", "d=z = 1"}, []string{"a=def f(): return g", "b=g = 2", "c=y = f()", "d=z = 1"}, "- edited depends -", 1, ""},
	{"an opaque cell below", []string{"a=x = 1", "b=!echo"}, []string{"a=x = 2", "b=!echo"}, "edited depends", 0, ""},
	{"an opaque cell above", []string{"a=!echo", "b=x = y"}, []string{"a=!echo 2", "b=x = y"}, "edited depends", 0, ""},
	{"an opaque cell ran before one above it", []string{"a=x = 1", "b=!echo", "a=x = 1"}, []string{"a=x = 1", "b=!echo"}, "- out_of_order", 1, ""},
	{"an opaque cell, twice", []string{"a=print(1)", "b=!echo", "a=print(1)", "b=!echo"}, []string{"a=print(1)", "b=!echo"}, "- -", -1, ""},
	{"a built-in name of the notebook's own", []string{"a=print = max", "b=!echo", "c=print(1)"}, []string{"b=!echo", "c=print(1)"}, "overwritten deleted", 0, "print"},
	{"code from nowhere", []string{"a=y = x"}, []string{"a=y = x"}, "-", -1, ""},
	{"tolerated", []string{"a~x = 1"}, []string{"a=x = 1"}, "-", -1, ""},
	{"an empty notebook", []string{"a=x = 1"}, nil, "", -1, "x"},
}

func TestWhatIsDirty(t *testing.T) {
	t.Parallel()
	var sources []string
	for _, c := range syncCases {
		for _, cell := range append(slices.Clone(c.runs), c.notebook...) {
			sources = append(sources, cell[2:])
		}
	}
	facts := borrow(t, stacks.Old(t)).factsBySource(sources)
	for _, c := range syncCases {
		var cells []Cell
		for _, cell := range c.notebook {
			cells = append(cells, Cell{cell[:1], facts[cell[2:]]})
		}
		var runs []Run
		for _, run := range c.runs {
			outcome := map[byte]Outcome{'=': Succeeded, '!': Failed, '~': Tolerated}[run[1]]
			runs = append(runs, Run{run[:1], facts[run[2:]], outcome})
		}
		plan := Sync(cells, runs)
		var reasons []string
		for _, r := range plan.Reasons {
			reasons = append(reasons, cmp.Or(string(r), "-"))
		}
		if got := strings.Join(reasons, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if from := slices.Index(plan.Dirty, true); from != c.from || from >= 0 && slices.Contains(plan.Dirty[from:], false) {
			t.Errorf("%s: dirty are %v, want those from %d on", c.name, plan.Dirty, c.from)
		}
		if got := strings.Join(plan.Linger, " "); got != c.linger {
			t.Errorf("%s: %q linger, want %q", c.name, got, c.linger)
		}
	}
}

func TestCellsOfWhichNothingIsKnownAreDirty(t *testing.T) {
	t.Parallel()
	plan := Sync([]Cell{{"a", nil}, {"b", &Facts{Problem: "?"}}}, []Run{{"a", nil, Succeeded}, {"b", &Facts{Problem: "?"}, Succeeded}})
	if !slices.Equal(plan.Stale, []bool{true, true}) || !slices.Equal(plan.Dirty, plan.Stale) {
		t.Errorf("the plan is %+v", plan)
	}
}

// A notebook of the greatest length is compared in little time, also if each cell needs the
// one above it or changes the same value.
func TestLongNotebooks(t *testing.T) {
	t.Parallel()
	for name, facts := range map[string]func(i int) *Facts{
		"a chain": func(i int) *Facts {
			name, above := fmt.Sprint("x", i), fmt.Sprint("x", i-1)
			return &Facts{Digest: name, Use: Use{Reads: []string{above}, MayStore: []string{name}}, Stores: []string{name}, Origins: map[string]Origin{name: {Same: []string{above}}}}
		},
		"one value": func(i int) *Facts {
			x := []string{"x"}
			return &Facts{Digest: fmt.Sprint(i), Use: Use{Reads: x[:min(i, 1)], MayStore: x}, Stores: x}
		},
	} {
		var cells []Cell
		var runs []Run
		for i := range MaxCells {
			cells = append(cells, Cell{fmt.Sprint(i), facts(i)})
			runs = append(runs, Run{fmt.Sprint(i), facts(i), Succeeded})
		}
		if n := count(Sync(cells, runs).Stale); n != 0 {
			t.Errorf("%s: %d cells are stale", name, n)
		}
		cells[MaxCells-1].Facts.Digest = "edited"
		if plan := Sync(cells, runs); name == "a chain" && count(plan.Stale) != 1 || name == "one value" && count(plan.Stale) != MaxCells {
			t.Errorf("%s: %d cells are stale after the last was edited", name, count(plan.Stale))
		}
		cells[0].Facts.Digest = "edited"
		if n := count(Sync(cells, runs).Stale); n != MaxCells {
			t.Errorf("%s: %d cells are stale after the first was edited", name, n)
		}
	}
}
