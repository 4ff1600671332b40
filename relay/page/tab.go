package page

import (
	"context"
	"encoding/json"
)

// Tab is a connected tab of Colab with one notebook. Its methods may be called concurrently.
type Tab struct {
	done chan struct{}
}

// Cell is a cell of the notebook in the tab.
type Cell struct {
	ID             string
	Type           string // "code" or "markdown"; Colab may have others
	Source         string
	ExecutionCount *int            // nil: never run, or running
	Outputs        json.RawMessage // a list of nbformat outputs; nil if they were not asked for
}

// Result is what a run of a cell produced.
type Result struct {
	Outputs json.RawMessage // a list of nbformat outputs; nil if the page answered without any
}

// Done is closed when the tab is lost.
func (t *Tab) Done() <-chan struct{} { return t.done }

// Cells returns the cells from index from to index to, both inclusive; to < 0 means to the
// end.
func (t *Tab) Cells(ctx context.Context, from, to int, outputs bool) ([]Cell, error) {
	return nil, ErrTabLost
}

// AddCode inserts a code cell and returns its id. language is "python", "r" or "julia".
func (t *Tab) AddCode(ctx context.Context, index int, language, code string) (string, error) {
	return "", ErrTabLost
}

// AddText inserts a text cell and returns its id.
func (t *Tab) AddText(ctx context.Context, index int, content string) (string, error) {
	return "", ErrTabLost
}

// Update replaces the source of a cell.
func (t *Tab) Update(ctx context.Context, id, content string) error { return ErrTabLost }

// Delete removes a cell.
func (t *Tab) Delete(ctx context.Context, id string) error { return ErrTabLost }

// Move moves a cell to an index.
func (t *Tab) Move(ctx context.Context, id string, index int) error { return ErrTabLost }

// Run runs a cell and waits for its end or for ctx. A second Run of a cell that runs joins
// the first.
func (t *Tab) Run(ctx context.Context, id string) (Result, error) { return Result{}, ErrTabLost }
