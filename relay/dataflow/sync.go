package dataflow

import "slices"

// Cell is a code cell as it is in the notebook now.
type Cell struct {
	ID    string
	Facts *Facts // nil if nothing is known
}

// Run is an execution of a cell in the present kernel's lifetime, with the facts of the source
// that ran. A cell that was skipped has none.
type Run struct {
	Cell    string
	Facts   *Facts // nil if nothing is known
	Outcome Outcome
}

// Reason is why a cell is dirty.
type Reason string

// Reasons. A cell with the empty reason is clean.
const (
	NeverRan    Reason = "never_run"    // it never ran in this kernel
	Edited      Reason = "edited"       // its code is not the code that ran
	LastFailed  Reason = "failed"       // its last run failed
	OutOfOrder  Reason = "out_of_order" // what it reads was written by another cell, or again, since the notebook's order was last followed
	LostSource  Reason = "deleted"      // it read what no cell above it writes any more
	BelowDirty  Reason = "depends"      // it reads what a dirty cell writes
	Overwritten Reason = "overwritten"  // what it wrote was changed later, and is needed
)

// words are the reasons as a person or a model reads them.
var words = map[Reason]string{
	NeverRan:    "it has not run in this kernel",
	Edited:      "what ran is not its present code",
	LastFailed:  "its last run failed",
	OutOfOrder:  "what it uses was made again, or by another cell, after it ran",
	LostSource:  "no cell above it makes what it used when it ran",
	BelowDirty:  "it uses what a cell that must run makes",
	Overwritten: "what it made was changed later, but is needed as it was",
}

// Words says why the cell must run, in a few words; nothing if it is clean.
func (r Reason) Words() string { return words[r] }

// Plan is what must run so that the kernel agrees with the notebook.
type Plan struct {
	// Reasons has one for each cell that is dirty itself or depends on one, and "" for others.
	Reasons []Reason
	// Stale are the cells with a reason. If they run in order and succeed, each name has the
	// value that running the whole notebook in a new kernel would give it.
	Stale []bool
	// Dirty are the cells from the first stale one to the end. It promises the same, and also
	// repeats what names do not show, such as files and random numbers.
	Dirty []bool
	// Linger are names that no cell of the notebook writes any more, and that are still in the
	// kernel; sorted.
	Linger []string
}

// Sync compares the notebook with what ran in the present kernel, in the order of the runs. In
// a new kernel there are no runs, and every cell is dirty.
func Sync(cells []Cell, runs []Run) Plan {
	s := newSyncer(cells, runs)
	s.judge()
	s.settle()
	plan := Plan{Reasons: slices.Clone(s.reasons), Stale: s.selected(), Linger: s.linger}
	s.selectToEnd()
	plan.Dirty = s.selected()
	return plan
}

// syncer is the work of Sync. The cells with a reason are those to run.
type syncer struct {
	cells   []Cell
	reasons []Reason
	last    []int                // the last run of each cell, -1 for none
	effects []effect             // of the cells, in the order of the notebook
	runs    []Run                // of the kernel
	inputs  []map[string]version // of each run
	kernel  *versions            // after all runs
	scope   scope                // of the kernel, after all runs
	linger  []string
}

func newSyncer(cells []Cell, runs []Run) *syncer {
	s := &syncer{cells: cells, runs: runs, reasons: make([]Reason, len(cells)), kernel: newVersions()}
	var notebook scope
	kernel, last := &s.scope, map[string]int{}
	for i, run := range runs {
		x := kernel.resolve(run.Facts)
		s.inputs = append(s.inputs, s.kernel.inputs(run.Facts, x))
		s.kernel.write(x, version(i+1))
		kernel.apply(run.Facts, run.Outcome == Succeeded)
		last[run.Cell] = i
	}
	for _, cell := range cells {
		s.effects = append(s.effects, notebook.resolve(cell.Facts))
		notebook.apply(cell.Facts, true)
		at, ran := last[cell.ID]
		if !ran {
			at = -1
		}
		s.last = append(s.last, at)
	}
	return s
}

// judge finds the reasons that lie in a cell's own last run.
func (s *syncer) judge() {
	for i, cell := range s.cells {
		if s.last[i] < 0 {
			s.reasons[i] = NeverRan
			continue
		}
		run := s.runs[s.last[i]]
		switch {
		case !sameCode(run.Facts, cell.Facts):
			s.reasons[i] = Edited
		case run.Outcome == Failed:
			s.reasons[i] = LastFailed
		}
	}
}

// sameCode reports whether two cells have the same syntax tree; false if one is not known.
func sameCode(a, b *Facts) bool {
	return a != nil && b != nil && a.Digest != "" && a.Digest == b.Digest
}

// maxRounds bounds the work of settle: after as many rounds it runs everything from the
// notebook's first cell.
const maxRounds = 50

// settle adds the cells that must run as well, until none is missing.
func (s *syncer) settle() {
	for range maxRounds {
		if !s.round() {
			return
		}
	}
	for i := range s.cells {
		s.need(i, BelowDirty)
	}
}

// selectToEnd selects all cells below the first selected one.
func (s *syncer) selectToEnd() {
	for {
		first := slices.IndexFunc(s.reasons, func(r Reason) bool { return r != "" })
		if first < 0 {
			return
		}
		for i := first; i < len(s.cells); i++ {
			s.need(i, BelowDirty)
		}
		s.settle()
		if !slices.ContainsFunc(s.reasons[:first], func(r Reason) bool { return r != "" }) {
			return
		}
	}
}

func (s *syncer) selected() []bool {
	selected := make([]bool, len(s.cells))
	for i, reason := range s.reasons {
		selected[i] = reason != ""
	}
	return selected
}

// need gives a cell a reason to run, and reports whether it had none.
func (s *syncer) need(i int, why Reason) bool {
	if s.reasons[i] != "" {
		return false
	}
	s.reasons[i] = why
	return true
}
