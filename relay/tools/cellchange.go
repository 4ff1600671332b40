package tools

import (
	"context"
	"fmt"

	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// removedSource is how many characters of a deleted cell's source are shown.
const removedSource = 22_000

type updateArgs struct {
	editArgs
	Cell    string `json:"cellId" min:"1" max:"200" doc:"From get_cells."`
	Content string `json:"content" doc:"The new source, or what replaces find."`
	Find    string `json:"find" default:"" doc:"Part of the source that occurs once; only it is replaced."`
	Type    string `json:"cell_type" default:"" choices:"code,markdown,raw" doc:"A new type."`
}

// UpdatedCell is the answer of update_cell.
type UpdatedCell struct{ Edited }

func updateCell() tool {
	return define(spec{
		name: "update_cell", title: "Change a cell's source",
		summary:     "replaces a cell's source, or one part of it",
		description: "Replaces a cell's source, or with find one part of it. Outputs stay. To show the user the edit first, call it with dry_run=true, then again with the digest from get_cells as expect_digest.",
		idempotent:  true, local: true,
	}, func(ctx context.Context, c *call, args updateArgs) (*UpdatedCell, *Problem) {
		kind := notebook.CellType(args.Type)
		var before notebook.Cell
		var source string
		edited, problem := c.edit(ctx, args.editArgs, cellEdit{
			change: func(d *notebook.Document) (func() error, error) {
				at, err := d.Find(args.Cell)
				if err != nil {
					return nil, err
				}
				before = d.Cell(at)
				source, err = newSource(before.Source, args.Find, args.Content)
				if err == nil && before.Halves && c.inTab(args.Path) {
					err = notebook.ErrHalves // the page gets the whole source as text
				}
				if err == nil && kind != "" && kind != before.Type && c.inTab(args.Path) {
					err = noTypeChange
				}
				if err != nil || source == before.Source && (kind == "" || kind == before.Type) {
					return nil, err
				}
				return func() error {
					before.Handle = d.Cell(at).Handle
					return d.SetSource(at, source, kind)
				}, nil
			},
			inTab: func(ctx context.Context, n *tabNotebook) error {
				id, err := n.id(before.Index)
				if err != nil {
					return err
				}
				if err = n.tab.Update(ctx, id, source); err == nil {
					c.tabRuns.end(n.tab, id) // the next run is of the new source
				}
				return err
			},
			diff: func() string {
				name := cellName(before.Index, before.Handle)
				return sourceDiff(name, name, before.Source, source)
			},
			did: func() string {
				if kind != "" && kind != before.Type {
					return fmt.Sprintf("%s is changed, and is a %s cell instead of a %s cell", cellName(before.Index, before.Handle), kind, plain.Clip(string(before.Type), 40))
				}
				return cellName(before.Index, before.Handle) + " is changed"
			},
		})
		if problem != nil {
			return nil, problem
		}
		return &UpdatedCell{edited}, nil
	})
}

var noTypeChange = &Problem{
	Code: string(contract.CodeNotSupported), Message: "Colab's page cannot change the type of a cell",
	Hint: "Add a cell of the other type with the same source, then delete this one; or ask the user to change it in Colab.",
}

type deleteArgs struct {
	editArgs
	Cell string `json:"cellId" min:"1" max:"200" doc:"From get_cells."`
}

// DeletedCell is the answer of delete_cell.
type DeletedCell struct {
	Source string `json:"source"` // the removed one; head and tail if it is long
	Edited
}

func deleteCell() tool {
	return define(spec{
		name: "delete_cell", title: "Delete a cell",
		summary:     "deletes a cell and returns its source",
		description: "Deletes a cell with its outputs, and returns its source. Variables that it made stay in the kernel.",
		destructive: true, local: true,
	}, func(ctx context.Context, c *call, args deleteArgs) (*DeletedCell, *Problem) {
		var cell notebook.Cell
		edited, problem := c.edit(ctx, args.editArgs, cellEdit{
			change: func(d *notebook.Document) (func() error, error) {
				at, err := d.Find(args.Cell)
				if err != nil {
					return nil, err
				}
				cell = d.Cell(at)
				return func() error { return d.Delete(at) }, nil
			},
			inTab: func(ctx context.Context, n *tabNotebook) error {
				id, err := n.id(cell.Index)
				if err != nil {
					return err
				}
				if err = n.tab.Delete(ctx, id); err == nil {
					c.tabRuns.end(n.tab, id)
				}
				return err
			},
			diff: func() string { return sourceDiff(cellName(cell.Index, cell.Handle), "/dev/null", cell.Source, "") },
			did: func() string {
				return fmt.Sprintf("%s %s is deleted", plain.Clip(string(cell.Type), 40), cellName(cell.Index, cell.Handle))
			},
		})
		if problem != nil {
			return nil, problem
		}
		got := &DeletedCell{Edited: edited}
		if cell.Halves || notebook.Unshown(cell.Source) != "" {
			got.Notes = append(got.Notes, "the source had characters that are not shown: a cell that is added with the source of this answer lacks them")
		}
		got.Source, _ = render.Clip(cell.Source, removedSource)
		return got, nil
	})
}

type moveArgs struct {
	editArgs
	Cell  string `json:"cellId" min:"1" max:"200" doc:"From get_cells."`
	Index int64  `json:"cellIndex" min:"-1" doc:"Its final index, from 0; -1 is the end."`
}

// MovedCell is the answer of move_cell.
type MovedCell struct {
	CellIndex int `json:"cellIndex"`
	Edited
}

func moveCell() tool {
	return define(spec{
		name: "move_cell", title: "Move a cell",
		summary:     "moves a cell to another index",
		description: "Moves a cell to another index.",
		idempotent:  true, local: true,
	}, func(ctx context.Context, c *call, args moveArgs) (*MovedCell, *Problem) {
		got := &MovedCell{}
		from, handle := 0, ""
		edited, problem := c.edit(ctx, args.editArgs, cellEdit{
			change: func(d *notebook.Document) (func() error, error) {
				at, err := d.Find(args.Cell)
				if err != nil {
					return nil, err
				}
				if args.Index >= int64(d.Len()) {
					return nil, noIndex(args.Index, d.Len(), d.Len()-1)
				}
				got.CellIndex = int(args.Index)
				if args.Index < 0 {
					got.CellIndex = d.Len() - 1
				}
				from, handle = at, d.Cell(at).Handle
				if from == got.CellIndex {
					return nil, nil
				}
				return func() error {
					handle = d.Cell(at).Handle
					return d.Move(at, got.CellIndex)
				}, nil
			},
			inTab: func(ctx context.Context, n *tabNotebook) error {
				id, err := n.id(from)
				if err != nil {
					return err
				}
				return n.tab.Move(ctx, id, got.CellIndex)
			},
			diff: func() string {
				return fmt.Sprintf("--- %s\n+++ %s\n", cellName(from, handle), cellName(got.CellIndex, handle))
			},
			did: func() string { return fmt.Sprintf("%s was cell %d before", cellName(got.CellIndex, handle), from) },
		})
		if problem != nil {
			return nil, problem
		}
		got.Edited = edited
		return got, nil
	})
}
