package cells

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
)

// How says how an edit is made.
type How struct {
	DryRun bool   `json:"dry_run" flag:"dry-run,n" usage:"print what would change, as a diff, and change nothing" default:"false" doc:"Only show the diff."`
	Digest string `json:"expect_digest" default:"" max:"200" doc:"Refuse another digest."`
}

// Edited is the answer to an edit.
type Edited struct {
	CellID    string   `json:"cell_id,omitempty"`
	CellIndex *int     `json:"cell_index,omitempty"` // absent for a deleted cell
	Source    string   `json:"source,omitempty"`     // of a deleted cell
	CellCount int      `json:"cell_count"`
	Digest    string   `json:"digest"`            // of the notebook after the edit
	Diff      string   `json:"diff"`              // unified diff of the cell's source; head and tail if it is long
	DryRun    bool     `json:"dry_run,omitempty"` // nothing was written
	Notes     []string `json:"notes,omitempty"`

	Did     string `json:"-"` // what was done, or would be
	Changed bool   `json:"-"`
	Added   bool   `json:"-"` // the cell is new
}

// unchanged is the note about an edit that changes nothing.
const unchanged = "the notebook is as it was: the edit changes nothing"

// plan finds the edit that is to be made of a document. It is called again if the notebook changed
// meanwhile.
type plan func(d document) (change, error)

// change is an edit of one cell: of a file or of a tab.
type change struct {
	before   *notebook.Cell    // nil: the cell is added
	after    *notebook.NewCell // nil: the cell is deleted
	to       int               // its index afterwards
	id       string            // its handle afterwards
	language string            // of an added code cell; empty: the notebook's
}

// nothing reports whether the cell stays as it is.
func (c *change) nothing() bool {
	return c.before != nil && c.after != nil && c.before.Index == c.to && c.before.Type == c.after.Type && c.before.Source == c.after.Source
}

// apply makes the edit in a document.
func (c *change) apply(d *notebook.Document) (err error) {
	if c.before != nil {
		c.before.Handle = d.Cell(c.before.Index).Handle // another one if ids were repaired
		c.id = c.before.Handle
	}
	switch {
	case c.nothing():
		return nil
	case c.before == nil:
		c.id, err = d.Insert(c.to, *c.after)
		return err
	case c.after == nil:
		return d.Delete(c.before.Index)
	case c.before.Index != c.to:
		err = d.Move(c.before.Index, c.to)
	default:
		err = d.SetSource(c.to, c.after.Source, c.after.Type)
	}
	if err == nil {
		c.id = d.Cell(c.to).Handle // one that depends on source or place is new
	}
	return err
}

// describe completes an answer with what the edit did to the cell.
func (c *change) describe(e *Edited) {
	e.CellID, e.Diff, e.Did, e.Added = c.id, c.diff(), c.did(), c.before == nil
	if c.after == nil {
		e.Source = c.before.Source
	} else {
		e.CellIndex = &c.to
	}
}

func (c *change) diff() string {
	from, to, was, is := "/dev/null", "/dev/null", "", ""
	if c.before != nil {
		from, was = Name(c.before.Index, c.before.Handle), c.before.Source
	}
	if c.after != nil {
		to, is = Name(c.to, c.id), c.after.Source
	}
	if was == is && from != to {
		return fmt.Sprintf("--- %s\n+++ %s\n", from, to)
	}
	text, _ := render.Clip(notebook.SourceDiff(from, to, was, is), notebook.DiffRunes)
	return text
}

func (c *change) did() string {
	name := Name(c.to, c.id)
	switch {
	case c.nothing():
		return name + " is as it was"
	case c.before == nil:
		return fmt.Sprintf("%s %s is new", c.after.Type, name)
	case c.after == nil:
		did := fmt.Sprintf("%s %s is deleted", plain.Clip(string(c.before.Type), 40), Name(c.before.Index, c.id))
		if line := c.before.Headline(); line != "" {
			did += ": " + plain.Quote(plain.Clip(line, 60))
		}
		return did
	case c.before.Index != c.to:
		return fmt.Sprintf("%s was cell %d before", name, c.before.Index)
	case c.before.Type != c.after.Type:
		return fmt.Sprintf("%s is changed, and is a %s cell instead of a %s cell", name, c.after.Type, plain.Clip(string(c.before.Type), 40))
	}
	return name + " is changed"
}

// AddArgs describe a new code cell.
type AddArgs struct {
	How
	Place
	Source   string            `json:"code" doc:"Its source."`
	Language string            `json:"language" default:"python" max:"40" rare:"" doc:"The notebook's language."` // empty: any
	Type     notebook.CellType `json:"-"`                                                                         // empty: code
	Tags     []string          `json:"-"`
}

// Place is where a cell is added: at the end, unless it says otherwise.
type Place struct {
	Index int64  `json:"cellIndex" flag:"at" usage:"give it this 'INDEX'; 0 is the first, -1 the end" default:"-1" min:"-1" doc:"Its index, from 0; -1 appends it."`
	After string `json:"afterCellId" flag:"after" usage:"put it below the cell with this 'ID' or index" default:"" max:"200" doc:"Or the cell before it."`
}

// in returns the index that the new cell gets.
func (p Place) in(d document) (int, error) {
	if p.After != "" && p.Index != -1 {
		return 0, ErrPlace
	}
	if p.After != "" {
		at, err := d.find(p.After)
		return at + 1, err
	}
	return index(p.Index, d.Len()), nil
}

// index returns the end for -1, and else the index as it is given: an edit refuses one that is not
// there.
func index(given int64, end int) int {
	if given == -1 {
		return end
	}
	return int(given)
}

// Add adds a cell.
func Add(ctx context.Context, nb Notebook, a AddArgs) (*Edited, error) {
	cell := &notebook.NewCell{Type: cmp.Or(a.Type, notebook.Code), Source: a.Source, Tags: a.Tags}
	return nb.edit(ctx, a.How, func(d document) (change, error) {
		at, err := a.Place.in(d)
		return change{after: cell, to: at, language: a.Language}, err
	})
}

// UpdateArgs describe another source or type of a cell.
type UpdateArgs struct {
	How
	Cell    string  `json:"cellId" arg:"ID" complete:"cells" min:"1" max:"200" doc:"From get_cells."`
	Content string  `json:"content" flag:"replace" usage:"with --find: the 'TEXT' to put there; empty deletes it" doc:"The new source, or what replaces find."`
	Find    string  `json:"find" flag:"find" usage:"change this 'TEXT', which the source has once" default:"" doc:"Part of the source that occurs once; only it is replaced."`
	Type    string  `json:"cell_type" flag:"type" usage:"make it a cell of this 'TYPE': code, markdown or raw" default:"" choices:"code,markdown,raw" doc:"A new type."`
	Seen    *string `json:"-"` // the source from which Content was made, and which was seen whole; nil: readers were not shown all
}

// Update changes the source of a cell, or its type.
func Update(ctx context.Context, nb Notebook, a UpdateArgs) (*Edited, error) {
	return nb.edit(ctx, a.How, func(d document) (c change, err error) {
		if c, err = at(d, a.Cell); err != nil {
			return c, err
		}
		if a.Type != "" {
			c.after.Type = notebook.CellType(a.Type)
		}
		switch {
		case a.Seen == nil:
			c.after.Source, err = newSource(c.before.Source, a.Find, a.Content)
		case *a.Seen != c.before.Source:
			err = fmt.Errorf("%w meanwhile", notebook.ErrCellChanged)
		default:
			c.after.Source = notebook.WithLineEnds(c.before.Source, a.Content)
		}
		return c, err
	})
}

// at finds a cell, and begins a change of it.
func at(d document, name string) (change, error) {
	i, err := d.find(name)
	if err != nil {
		return change{}, err
	}
	cell := d.Cell(i)
	return change{before: &cell, after: &notebook.NewCell{Type: cell.Type, Source: cell.Source}, to: i}, nil
}

// newSource returns a source with content in place of find, which must occur once, or content if
// there is no find.
func newSource(source, find, content string) (string, error) {
	find, content = notebook.WithLineEnds(source, find), notebook.WithLineEnds(source, content)
	if find == "" {
		if loss := notebook.Loss(source, content); loss != "" {
			return "", fmt.Errorf("%w: %s", ErrLoss, loss)
		}
		return content, nil
	}
	n := strings.Count(source, find)
	if n == 1 {
		return strings.Replace(source, find, content, 1), nil
	}
	also := ""
	if hidden := notebook.Unshown(source); hidden != "" {
		also = fmt.Sprintf("; the source also has characters that are not shown (%s)", hidden)
	}
	return "", fmt.Errorf("%w, and is there %d times%s", ErrFind, n, also)
}

// DeleteArgs name a cell.
type DeleteArgs struct {
	How
	Cell string `json:"cellId" arg:"ID" complete:"cells" min:"1" max:"200" doc:"From get_cells."`
}

// Delete deletes a cell.
func Delete(ctx context.Context, nb Notebook, a DeleteArgs) (*Edited, error) {
	return nb.edit(ctx, a.How, func(d document) (change, error) {
		c, err := at(d, a.Cell)
		c.after = nil
		return c, err
	})
}

// MoveArgs name a cell and its index afterwards.
type MoveArgs struct {
	How
	Cell  string `json:"cellId" arg:"ID" complete:"cells" min:"1" max:"200" doc:"From get_cells."`
	Index int64  `json:"cellIndex" arg:"INDEX" min:"-1" doc:"Its final index, from 0; -1 is the end."`
}

// Move moves a cell.
func Move(ctx context.Context, nb Notebook, a MoveArgs) (*Edited, error) {
	return nb.edit(ctx, a.How, func(d document) (c change, err error) {
		if c, err = at(d, a.Cell); err == nil {
			c.to = index(a.Index, d.Len()-1)
		}
		return c, err
	})
}
