package dataflow

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

// worked is a notebook that somebody works with: cells are edited, moved, deleted and run in
// any order.
type worked struct {
	w     *writer
	cells []cellNow
	setup int // the number of setup cells
	next  int
	runs  []ran
}

type cellNow struct{ id, source string }

// ran is one run of a cell.
type ran struct {
	cellNow
	fails bool
}

func (n *worked) add(at int) {
	source := n.w.cell()
	if n.w.IntN(4) == 0 {
		source = n.w.breakable(source)
	}
	n.cells = slices.Insert(n.cells, at, cellNow{fmt.Sprint(n.next), source})
	n.next++
}

func (n *worked) run(at int) {
	c := n.cells[at]
	n.runs = append(n.runs, ran{c, n.w.IntN(3) == 0 && strings.Contains(c.source, "checkpoint()")})
}

func (n *worked) runAll() {
	for i := range n.cells {
		n.run(i)
	}
}

// act does one thing that people do with notebooks. The setup cells stay where they are.
func (n *worked) act() {
	at := n.setup + n.w.IntN(len(n.cells)-n.setup)
	switch n.w.IntN(8) {
	case 0, 1:
		n.cells[at].source = n.w.cell()
	case 2:
		n.add(at)
	case 3:
		if len(n.cells) > n.setup+3 {
			n.cells = slices.Delete(n.cells, at, at+1)
		}
	case 4:
		c := n.cells[at]
		n.cells = slices.Delete(n.cells, at, at+1)
		n.cells = slices.Insert(n.cells, n.setup+n.w.IntN(len(n.cells)-n.setup+1), c)
	case 5, 6:
		n.run(at)
	case 7:
		for ; at < len(n.cells); at++ {
			n.run(at)
		}
	}
}

func newWorked(r *rand.Rand) *worked {
	n := &worked{w: &writer{Rand: r}}
	for i, cell := range n.w.setup() {
		n.cells = append(n.cells, cellNow{"setup" + fmt.Sprint(i), cell})
	}
	n.setup = len(n.cells)
	for range 6 {
		n.add(len(n.cells))
	}
	if r.IntN(5) > 0 {
		n.runAll()
	}
	for range 1 + r.IntN(3) {
		n.act()
	}
	return n
}

// After any edits and runs, the cells of a plan make the kernel what running the whole
// notebook in a new kernel makes it.
func TestPlansRepairTheKernel(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		k, r := borrow(t, s), seed(2+len(s.Name)+int(s.Name[0]))
		for range samples(1) {
			var notebooks []*worked
			for range 80 {
				notebooks = append(notebooks, newWorked(r))
			}
			checkPlans(t, k, notebooks)
		}
	})
}

func checkPlans(t *testing.T, k *kernel, notebooks []*worked) {
	t.Helper()
	facts := factsOf(k, notebooks)
	var history, fresh, dirty, stale [][]step
	for _, n := range notebooks {
		history = append(history, n.history())
		fresh = append(fresh, n.steps(nil))
	}
	var plans []Plan
	for i, p := range k.play(history) {
		n := notebooks[i]
		plan := Sync(n.inNotebook(facts), n.inKernel(facts, p.Statuses))
		plans = append(plans, plan)
		dirty = append(dirty, append(slices.Clone(history[i]), n.steps(plan.Dirty)...))
		stale = append(stale, append(slices.Clone(history[i]), n.steps(plan.Stale)...))
	}
	wanted, dirtied, staled := k.play(fresh), k.play(dirty), k.play(stale)
	good, unsettled, cells := 0, 0, [3]int{}
	for i, n := range notebooks {
		if slices.ContainsFunc(wanted[i].Statuses, func(s string) bool { return s != "" }) {
			continue
		}
		good++
		cells[0] += len(n.cells)
		for which, got := range []played{dirtied[i], staled[i]} {
			selected := [][]bool{plans[i].Dirty, plans[i].Stale}[which]
			cells[1+which] += count(selected)
			if fault := n.fault(got, wanted[i], plans[i], len(history[i])); fault != "" {
				t.Errorf("%s after running %s (%v)\n%s", fault, []string{"dirty", "stale"}[which], plans[i].Reasons, n)
			}
			after := append(n.inKernel(facts, got.Statuses), n.selectedRuns(facts, selected)...)
			if again := Sync(n.inNotebook(facts), after); count(again.Stale) > 0 && len(again.Linger) == 0 {
				unsettled++
			}
		}
	}
	t.Logf("of %d cells in %d notebooks that succeed, %d were dirty and %d stale; %d plans do not settle", cells[0], good, cells[1], cells[2], unsettled)
	// What earlier runs left behind may be another name of a value, so that a plan is too long
	// once more; that must be rare.
	if unsettled > good/10 {
		t.Errorf("after %d of %d plans some cells are still dirty", unsettled, 2*good)
	}
	if good < len(notebooks)/3 || cells[2] >= cells[1] || cells[1] >= cells[0] {
		t.Error("these notebooks test nothing")
	}
}

// fault compares the values after a repair with those of a new kernel.
func (n *worked) fault(got, want played, plan Plan, steps int) string {
	for _, status := range got.Statuses[steps:] {
		if status != "" {
			return "a cell raised " + status
		}
	}
	repaired, wanted := last(got), last(want)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if repaired[name] != wanted[name] {
			return fmt.Sprintf("%s is %s and not %s", name, repaired[name], wanted[name])
		}
	}
	for name := range repaired {
		if _, ok := wanted[name]; !ok && !slices.Contains(plan.Linger, name) {
			return name + " lingers unnoticed"
		}
	}
	return ""
}

func last(p played) map[string]string { return p.Values[len(p.Values)-1] }

func count(selected []bool) (n int) {
	for _, s := range selected {
		if s {
			n++
		}
	}
	return n
}

func (n *worked) history() []step {
	var steps []step
	for _, r := range n.runs {
		steps = append(steps, step{Cell: r.source, Fails: r.fails})
	}
	return append(steps, step{Show: true})
}

// steps are the selected cells, or all.
func (n *worked) steps(selected []bool) []step {
	var steps []step
	for i, c := range n.cells {
		if selected == nil || selected[i] {
			steps = append(steps, step{Cell: c.source})
		}
	}
	return append(steps, step{Show: true})
}

func (n *worked) inNotebook(facts map[string]*Facts) []Cell {
	var cells []Cell
	for _, c := range n.cells {
		cells = append(cells, Cell{c.id, facts[c.source]})
	}
	return cells
}

func (n *worked) inKernel(facts map[string]*Facts, statuses []string) []Run {
	var runs []Run
	for i, r := range n.runs {
		outcome := Succeeded
		if statuses[i] != "" {
			outcome = Failed
		}
		runs = append(runs, Run{r.id, facts[r.source], outcome})
	}
	return runs
}

func (n *worked) selectedRuns(facts map[string]*Facts, selected []bool) []Run {
	var runs []Run
	for i, c := range n.cells {
		if selected[i] {
			runs = append(runs, Run{c.id, facts[c.source], Succeeded})
		}
	}
	return runs
}

func factsOf(k *kernel, notebooks []*worked) map[string]*Facts {
	var sources []string
	for _, n := range notebooks {
		for _, c := range n.cells {
			sources = append(sources, c.source)
		}
		for _, r := range n.runs {
			sources = append(sources, r.source)
		}
	}
	return k.factsBySource(sources)
}

func (n *worked) String() string {
	var b strings.Builder
	for _, r := range n.runs {
		if !strings.HasPrefix(r.id, "setup") {
			fmt.Fprintf(&b, "--- ran %s (fails: %t)\n%s\n", r.id, r.fails, r.source)
		}
	}
	for _, c := range n.cells[n.setup:] {
		fmt.Fprintf(&b, "=== %s\n%s\n", c.id, c.source)
	}
	return b.String()
}
