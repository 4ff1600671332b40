package cells

import (
	"context"
	"fmt"
	"strings"

	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
)

// How says how an edit is made.
type How struct {
	DryRun bool   `json:"dry_run" default:"false" doc:"Only show the diff."`
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
}

// unchanged is the note about an edit that changes nothing.
const unchanged = "the notebook is as it was: the edit changes nothing"

// plan finds the edit that is to be made of a document. It is called again if the notebook changed
// meanwhile.
type plan func(d *notebook.Document) (change, error)

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
	e.CellID, e.Diff, e.Did = c.id, c.diff(), c.did()
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
		if line := Headline(*c.before); line != "" {
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

// AddArgs describe a new cell.
type AddArgs struct {
	How
	Place
	Cell     notebook.NewCell
	Language string // of a code cell; empty: the notebook's
}

// Place is where a cell is added: at the end, unless it says otherwise.
type Place struct {
	Index int64  `json:"cellIndex" default:"-1" min:"-1" doc:"Its index, from 0; -1 appends it."`
	After string `json:"afterCellId" default:"" max:"200" doc:"Or the cell before it."`
}

// in returns the index that the new cell gets.
func (p Place) in(d *notebook.Document) (int, error) {
	if p.After != "" && p.Index != -1 {
		return 0, ErrPlace
	}
	if p.After != "" {
		at, err := d.Find(p.After)
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
	return nb.edit(ctx, a.How, func(d *notebook.Document) (change, error) {
		at, err := a.Place.in(d)
		return change{after: &a.Cell, to: at, language: a.Language}, err
	})
}

// UpdateArgs describe another source or type of a cell.
type UpdateArgs struct {
	How
	Cell    string `json:"cellId" min:"1" max:"200" doc:"From get_cells."`
	Content string `json:"content" doc:"The new source, or what replaces find."`
	Find    string `json:"find" default:"" doc:"Part of the source that occurs once; only it is replaced."`
	Type    string `json:"cell_type" default:"" choices:"code,markdown,raw" doc:"A new type."`
}

// Update changes the source of a cell, or its type.
func Update(ctx context.Context, nb Notebook, a UpdateArgs) (*Edited, error) {
	return update(ctx, nb, a, func(source string) (string, error) { return newSource(source, a.Find, a.Content) })
}

// Rewrite returns an Update whose content was made from a cell's source, which was seen whole.
func Rewrite(seen string) func(context.Context, Notebook, UpdateArgs) (*Edited, error) {
	return func(ctx context.Context, nb Notebook, a UpdateArgs) (*Edited, error) {
		return update(ctx, nb, a, func(source string) (string, error) {
			if source != seen {
				return "", fmt.Errorf("%w meanwhile", notebook.ErrCellChanged)
			}
			return notebook.WithLineEnds(source, a.Content), nil
		})
	}
}

func update(ctx context.Context, nb Notebook, a UpdateArgs, newSource func(string) (string, error)) (*Edited, error) {
	return nb.edit(ctx, a.How, func(d *notebook.Document) (c change, err error) {
		if c, err = at(d, a.Cell); err != nil {
			return c, err
		}
		if a.Type != "" {
			c.after.Type = notebook.CellType(a.Type)
		}
		c.after.Source, err = newSource(c.before.Source)
		return c, err
	})
}

// at finds a cell, and begins a change of it.
func at(d *notebook.Document, handle string) (change, error) {
	i, err := d.Find(handle)
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
	Cell string `json:"cellId" min:"1" max:"200" doc:"From get_cells."`
}

// Delete deletes a cell.
func Delete(ctx context.Context, nb Notebook, a DeleteArgs) (*Edited, error) {
	return nb.edit(ctx, a.How, func(d *notebook.Document) (change, error) {
		c, err := at(d, a.Cell)
		c.after = nil
		return c, err
	})
}

// MoveArgs name a cell and its index afterwards.
type MoveArgs struct {
	How
	Cell  string `json:"cellId" min:"1" max:"200" doc:"From get_cells."`
	Index int64  `json:"cellIndex" min:"-1" doc:"Its final index, from 0; -1 is the end."`
}

// Move moves a cell.
func Move(ctx context.Context, nb Notebook, a MoveArgs) (*Edited, error) {
	return nb.edit(ctx, a.How, func(d *notebook.Document) (c change, err error) {
		if c, err = at(d, a.Cell); err == nil {
			c.to = index(a.Index, d.Len()-1)
		}
		return c, err
	})
}
