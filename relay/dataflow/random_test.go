package dataflow

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

// samples is how many random notebooks a test uses.
func samples(n int) int {
	if os.Getenv("LONG") != "" {
		return n * 25
	}
	return n
}

// seed is the same in every run unless SEED asks for another.
func seed(n int) *rand.Rand {
	var more uint64
	fmt.Sscan(os.Getenv("SEED"), &more)
	return rand.New(rand.NewPCG(uint64(n), more))
}

// broken is a notebook with a cell that can be made to fail.
type broken struct {
	cells []string
	setup int // the number of setup cells
	bad   int
	facts []Facts
	well  played // without the failure
	skip  []bool
	left  *Poison
}

// Each cell that is not skipped after a failure does what it does without the failure.
func TestCellsThatAreNotSkippedDoNotNoticeTheFailure(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		k, r := borrow(t, s), seed(int(s.Name[0]))
		for range samples(1) {
			var notebooks []*broken
			for range 80 {
				w := &writer{Rand: r}
				n := &broken{cells: w.notebook(8)}
				n.setup = len(n.cells) - 8
				n.bad = n.setup + r.IntN(5)
				n.cells[n.bad] = w.breakable(n.cells[n.bad])
				notebooks = append(notebooks, n)
			}
			k.findFacts(notebooks)
			checkBroken(t, k, notebooks)
		}
	})
}

func (k *kernel) findFacts(notebooks []*broken) {
	var sources []string
	for _, n := range notebooks {
		sources = append(sources, n.cells...)
	}
	facts := k.factsBySource(sources)
	for _, n := range notebooks {
		for _, cell := range n.cells {
			n.facts = append(n.facts, *facts[cell])
		}
	}
}

func (k *kernel) factsBySource(sources []string) map[string]*Facts {
	slices.Sort(sources)
	sources = slices.Compact(sources)
	found, facts := map[string]*Facts{}, k.analyse(sources)
	for i, source := range sources {
		found[source] = &facts[i]
	}
	return found
}

func checkBroken(t *testing.T, k *kernel, notebooks []*broken) {
	t.Helper()
	var well, failing [][]step
	for _, n := range notebooks {
		well = append(well, n.steps(false))
	}
	for i, p := range k.play(well) {
		notebooks[i].well = p
		notebooks[i].decide()
		failing = append(failing, notebooks[i].steps(true))
	}
	skipped, ran := 0, 0
	for i, p := range k.play(failing) {
		n := notebooks[i]
		if fault := n.fault(p); fault != "" {
			t.Errorf("%s\n%s", fault, n)
		}
		for at := n.bad + 1; at < len(n.cells); at++ {
			if n.skip[at] {
				skipped++
			} else {
				ran++
			}
		}
	}
	t.Logf("below failed cells, %d cells ran and %d were skipped", ran, skipped)
	if ran < skipped/10 || skipped == 0 {
		t.Errorf("below failed cells, %d cells ran and %d were skipped", ran, skipped)
	}
}

func (n *broken) steps(fails bool) []step {
	var steps []step
	for i, cell := range n.cells {
		if fails && n.skip[i] {
			cell = ""
		}
		steps = append(steps, step{Cell: cell, Fails: fails && i == n.bad, Show: i >= n.setup})
	}
	return steps
}

// decide asks Poison which cells to skip. Cells that are not skipped end as they do without
// the failure; fault checks that.
func (n *broken) decide() {
	n.left = &Poison{}
	for i, f := range n.facts {
		outcome := Succeeded
		n.skip = append(n.skip, len(n.left.Skips(&f)) > 0)
		if n.skip[i] || i == n.bad || n.well.Statuses[i] != "" {
			outcome = Failed
		}
		n.left.Add(fmt.Sprint(i), &f, outcome)
	}
}

// fault describes a cell that noticed the failure; "" if there is none.
func (n *broken) fault(p played) string {
	for i := range n.cells {
		if i < n.setup || n.skip[i] || i == n.bad {
			continue
		}
		if p.Statuses[i] != n.well.Statuses[i] {
			return fmt.Sprintf("cell %d ended with %q, and with %q without the failure", i, p.Statuses[i], n.well.Statuses[i])
		}
		for _, name := range n.facts[i].Stores {
			if got, want := p.Values[i][name], n.well.Values[i][name]; got != want && p.Statuses[i] == "" {
				return fmt.Sprintf("cell %d made %s = %s, and %s without the failure", i, name, got, want)
			}
		}
	}
	last := len(n.cells) - 1
	for name, want := range n.well.Values[last] {
		if _, poisoned := n.left.names[name]; poisoned || n.left.any {
			continue
		}
		if got := p.Values[last][name]; got != want {
			return fmt.Sprintf("at the end %s = %s, and %s without the failure", name, got, want)
		}
	}
	return ""
}

func (n *broken) String() string {
	var b strings.Builder
	for i, cell := range n.cells {
		mark := ""
		if i < len(n.skip) && n.skip[i] {
			mark = " (skipped)"
		}
		if i == n.bad {
			mark = " (fails)"
		}
		if i >= n.setup {
			fmt.Fprintf(&b, "--- %d%s\n%s\n", i, mark, cell)
		}
	}
	return b.String()
}
