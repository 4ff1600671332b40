package dataflow

// Outcome is how a cell ended, as far as names are concerned.
type Outcome int

// Outcomes.
const (
	Succeeded Outcome = iota
	// Failed: it failed, was interrupted or timed out, or was skipped.
	Failed
	// Tolerated: it failed, and later cells are to run all the same, as after a cell with the
	// tag raises-exception.
	Tolerated
)

// Because is a reason to skip a cell.
type Because struct {
	Cell string `json:"cell"` // the cell that failed or was skipped
	// Names are what it may have left undone and the skipped cell reads. Without any, the
	// cells can't be told apart: one of them may read or write everything.
	Names []string `json:"names,omitempty"`
}

// Poison follows the names that failed and skipped cells should have written. The zero value
// is ready.
//
// Add gets every cell of the notebook in its order, also those that ran in earlier calls and
// those that are not selected but ran before in this kernel, because they define functions.
type Poison struct{}

// Skips returns why a cell must not run; empty if it may. facts is nil if nothing is known of
// the cell.
func (p *Poison) Skips(facts *Facts) []Because { return nil }

// Add records how a cell ended.
func (p *Poison) Add(cell string, facts *Facts, outcome Outcome) {}
