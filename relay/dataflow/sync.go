package dataflow

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
	NeverRan    Reason = "never_run"    // it never succeeded in this kernel
	Edited      Reason = "edited"       // its code is not the code that ran
	LastFailed  Reason = "failed"       // its last run failed
	OutOfOrder  Reason = "out_of_order" // a cell above it ran after it
	LostSource  Reason = "deleted"      // it read what a deleted or changed cell wrote
	BelowDirty  Reason = "opaque"       // it may read anything, and a cell above it is dirty
	Overwritten Reason = "overwritten"  // what it wrote was changed later, and is needed
)

// Plan is what must run so that the kernel agrees with the notebook.
type Plan struct {
	Reasons []Reason // of each cell
	Dirty   []bool   // the cells of cells="dirty": from the first dirty one to the end
	Stale   []bool   // the cells of cells="stale": the dirty ones and those that depend on them
	// Linger are names that no cell of the notebook writes any more, and that are still in the
	// kernel; sorted.
	Linger []string
}

// Sync compares the notebook with what ran in the present kernel, in the order of the runs. In
// a new kernel there are no runs, and every cell is dirty.
func Sync(cells []Cell, runs []Run) Plan {
	return Plan{Reasons: make([]Reason, len(cells)), Dirty: make([]bool, len(cells)), Stale: make([]bool, len(cells))}
}
