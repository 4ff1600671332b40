// Package cells has what can be done with the cells of a notebook, in a file or in Colab's tab: list
// and search them, add, change, move and delete them, run one in the tab. Tools and commands turn
// arguments into these calls, and answers into texts.
//
// It must not run the cells of a file: package nbrun does. Of tools and commands it knows only the
// arguments that they share. Start reading at Notebook.
package cells

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
)

// Errors of this package, besides those of notebook and page. Their texts say what is wrong.
var (
	ErrFind       = errors.New("the text to find must be in the cell's source once")
	ErrLanguage   = errors.New("a code cell cannot have this language")
	ErrLoss       = errors.New("a part of the source would be lost")
	ErrNotCode    = errors.New("only code cells can be run")
	ErrNotRun     = errors.New("the page answered without running the cell")
	ErrPlace      = errors.New("an index and the cell before it are both given")
	ErrQuery      = errors.New("the regular expression cannot be used")
	ErrSameID     = errors.New("two cells in the tab have the same id, so Colab's page would change or run the wrong one")
	ErrTabChanged = errors.New("the notebook in the tab was edited meanwhile")
	ErrType       = errors.New("the page cannot change the type of a cell")
)

// Notebook is where cells are: a File or a Tab.
type Notebook interface {
	// read returns the cells as they are now.
	read(ctx context.Context) (*snapshot, error)
	// edit makes the edit that a plan finds in the cells as they are then.
	edit(ctx context.Context, h How, p plan) (*Edited, error)
}

// document is a notebook whose cells a call names.
type document struct {
	*notebook.Document
	byIndex bool // or by their index, if no cell has it as its id
}

// find returns the index of the cell that a call names.
func (d document) find(name string) (int, error) {
	at, err := d.Find(name)
	if index, wrong := strconv.Atoi(name); d.byIndex && err != nil && wrong == nil && index >= 0 && index < d.Len() {
		return index, nil
	}
	return at, err
}

// snapshot is a notebook as it was at one moment.
type snapshot struct {
	doc    document
	digest string        // for How
	path   string        // of a file
	states []nbrun.State // of all cells, as far as they are known; nil for no cell that was run
	notes  []string
	tab    *page.Tab   // nil for a file
	cells  []page.Cell // of the tab, without outputs
}

// outputs returns the JSON list of a cell's outputs. A tab is asked for one cell at a time, which must
// still be there: each may have many megabytes.
func (s *snapshot) outputs(ctx context.Context, cell notebook.Cell) (json.RawMessage, error) {
	if s.tab == nil || cell.Type != notebook.Code {
		return cell.Outputs, nil
	}
	cells, err := s.tab.Cells(ctx, cell.Index, cell.Index, true)
	if err == nil && (len(cells) == 0 || cells[0].ID != s.cells[cell.Index].ID) {
		err = ErrTabChanged
	}
	if err != nil {
		return nil, err
	}
	return cells[0].Outputs, nil
}

// Name names a cell, in the only way in which answers do.
func Name(index int, handle string) string {
	return fmt.Sprintf("cell %d (id %s)", index, plain.Word(plain.Clip(handle, maxHandle)))
}

// maxHandle is how many characters of a handle a line has at most.
const maxHandle = 300
