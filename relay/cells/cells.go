// Package cells has what can be done with the cells of a notebook, in a file or in Colab's tab: list
// and search them, add, change, move and delete them, run one in the tab. Tools and commands turn
// arguments into these calls, and answers into texts.
//
// It must not run the cells of a file: package nbrun does. Of tools and commands it knows only the
// arguments that they share. Start reading at Notebook.
package cells

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
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

// File is the notebook in a file.
type File struct {
	*notebook.File
	Records string                                // the folder with the records of its runs
	Seen    func(runtime string) pairing.LastSeen // the kernel that was last seen of a runtime
	ByIndex bool                                  // a cell may be named by its index, as people do
}

// read returns the cells, with the states that the record of their runs and the last kernel tell.
func (f File) read(context.Context) (*snapshot, error) {
	doc, err := f.Read()
	if err != nil {
		return nil, err
	}
	s := &snapshot{doc: document{doc, f.ByIndex}, digest: doc.Digest(), path: f.Path()}
	record, err := nbrun.Load(f.Records, f.Path())
	switch {
	case err == nil:
		seen := f.Seen(record.Runtime)
		record.Meet(seen.KernelID, seen.Since)
		s.states = record.States(doc)
	case !errors.Is(err, checkpoint.ErrNotFound):
		s.notes = []string{"whether cells have run is not known: " + err.Error()}
	}
	return s, nil
}

func (f File) edit(ctx context.Context, h How, p plan) (*Edited, error) {
	var c change
	return f.Change(ctx, h, func(d *notebook.Document, e *Edited) (err error) {
		if c, err = p(document{d, f.ByIndex}); err == nil {
			err = c.fits(d)
		}
		if err != nil {
			return err
		}
		if !c.nothing() {
			e.Notes = d.RepairIDs() // which changes handles, but no index
		}
		err = c.apply(d)
		c.describe(e)
		return err
	})
}

// fits refuses a code cell of another language than the notebook's.
func (c *change) fits(d *notebook.Document) error {
	switch {
	case c.language == "" || strings.EqualFold(c.language, d.Language()):
		return nil
	case d.IsPython() && (d.Len() == 0 || strings.EqualFold(c.language, "python")):
		return nil
	}
	return fmt.Errorf("%w: the notebook's is %s, not %s", ErrLanguage, plain.Clip(d.Language(), 40), plain.Clip(c.language, 40))
}

// Change makes any edit of the file. edit describes it.
func (f File) Change(ctx context.Context, h How, edit func(d *notebook.Document, e *Edited) error) (*Edited, error) {
	var e Edited
	var tried notebook.Change
	done, err := f.File.Edit(ctx, h.Digest, func(d *notebook.Document) error {
		before := *d // edits write new bytes
		e, tried = Edited{}, notebook.Change{Before: &before, After: d}
		if err := edit(d, &e); err != nil || !h.DryRun {
			return err
		}
		return errTried
	})
	switch {
	case errors.Is(err, errTried):
		done = tried
	case errors.Is(err, context.DeadlineExceeded): // while it waited for the lock
		return nil, notebook.ErrBusy
	case err != nil:
		return nil, err
	}
	e.CellCount, e.Digest, e.DryRun = done.After.Len(), done.After.Digest(), h.DryRun
	e.Notes = append(done.Notes, e.Notes...)
	if e.Changed = !bytes.Equal(done.Before.Bytes(), done.After.Bytes()); !e.Changed {
		e.Notes = append(e.Notes, unchanged)
	}
	return &e, nil
}

// errTried ends an edit that is not to be written.
var errTried = errors.New("nothing is written")
