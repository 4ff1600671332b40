package tools

import (
	"context"
	"fmt"
	"strings"

	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// place is where a cell is added.
type place struct {
	index int64
	after string // the id of a cell; instead of index
}

// check refuses a place that is given twice.
func (p place) check() *Problem {
	if p.index == -1 || p.after == "" {
		return nil
	}
	return &Problem{Code: codeBadRequest, Message: "bad arguments: cellIndex and afterCellId are both given", Hint: "Give one of them; without both, the cell is appended."}
}

// in returns the index at which the cell is inserted.
func (p place) in(d *notebook.Document) (int, error) {
	if p.after != "" {
		at, err := d.Find(p.after)
		return at + 1, err
	}
	if p.index > int64(d.Len()) {
		return 0, noIndex(p.index, d.Len(), d.Len())
	}
	if p.index < 0 {
		return d.Len(), nil
	}
	return int(p.index), nil
}

// noIndex says that a cell cannot be at an index.
func noIndex(index int64, cells, most int) *Problem {
	return &Problem{
		Code: codeBadRequest, Message: fmt.Sprintf("bad arguments: cellIndex is %d, and the notebook has %s", index, plain.Count(cells, "cell")),
		Hint: fmt.Sprintf("Use an index from 0 to %d, or -1 for the end.", max(0, most)),
	}
}

// AddedCell is the answer of add_code_cell and add_text_cell.
type AddedCell struct {
	NewCellID string `json:"newCellId"`
	CellIndex int    `json:"cellIndex"`
	Edited
}

// add adds a cell.
func (c *call) add(ctx context.Context, args editArgs, p place, cell notebook.NewCell, check func(d *notebook.Document) error) (*AddedCell, *Problem) {
	if problem := p.check(); problem != nil {
		return nil, problem
	}
	got := &AddedCell{}
	edited, problem := c.edit(ctx, args, cellEdit{
		create: true,
		change: func(d *notebook.Document) (func() error, error) {
			if err := check(d); err != nil {
				return nil, err
			}
			at, err := p.in(d)
			got.CellIndex = at
			return func() error {
				got.NewCellID, err = d.Insert(at, cell)
				return err
			}, err
		},
		diff: func() string { return SourceDiff("/dev/null", cellName(got.CellIndex, got.NewCellID), "", cell.Source) },
		did: func() string {
			return fmt.Sprintf("%s cell %s is new at index %d", cell.Type, got.NewCellID, got.CellIndex)
		},
	})
	if problem != nil {
		return nil, problem
	}
	got.Edited = edited
	return got, nil
}

type addCodeArgs struct {
	editArgs
	Code     string `json:"code" doc:"Its source."`
	Index    int64  `json:"cellIndex" default:"-1" min:"-1" doc:"Its index, from 0; -1 appends it."`
	After    string `json:"afterCellId" default:"" max:"200" doc:"Or the cell before it."`
	Language string `json:"language" default:"python" max:"40" doc:"The notebook's language."`
}

func addCodeCell() tool {
	return define(spec{
		name: "add_code_cell", title: "Add a code cell",
		summary:     "adds a code cell; creates a missing notebook",
		description: "Use it to add a code cell to an .ipynb file, or to a new one if the file is missing. It does not run the cell: call run_code_cell with newCellId.",
		local:       true,
	}, func(ctx context.Context, c *call, args addCodeArgs) (*AddedCell, *Problem) {
		sameLanguage := func(d *notebook.Document) error {
			if d.Len() == 0 && d.IsPython() || strings.EqualFold(args.Language, d.Language()) || strings.EqualFold(args.Language, "python") && d.IsPython() {
				return nil
			}
			return &Problem{
				Code:    string(contract.CodeNotSupported),
				Message: fmt.Sprintf("the notebook's language is %s, not %s", clipTo(d.Language(), 40), clipTo(args.Language, 40)),
				Hint:    "Give the notebook's own language, or use another notebook. Only Python cells can be run.",
			}
		}
		return c.add(ctx, args.editArgs, place{args.Index, args.After}, notebook.NewCell{Type: notebook.Code, Source: args.Code}, sameLanguage)
	})
}

type addTextArgs struct {
	editArgs
	Content string `json:"content" doc:"Markdown."`
	Index   int64  `json:"cellIndex" default:"-1" min:"-1" doc:"Its index, from 0; -1 appends it."`
	After   string `json:"afterCellId" default:"" max:"200" doc:"Or the cell before it."`
}

func addTextCell() tool {
	return define(spec{
		name: "add_text_cell", title: "Add a text cell",
		summary:     "adds a Markdown cell; creates a missing notebook",
		description: "Use it to add a Markdown cell to an .ipynb file, or to a new one if the file is missing.",
		local:       true,
	}, func(ctx context.Context, c *call, args addTextArgs) (*AddedCell, *Problem) {
		any := func(*notebook.Document) error { return nil }
		return c.add(ctx, args.editArgs, place{args.Index, args.After}, notebook.NewCell{Type: notebook.Markdown, Source: args.Content}, any)
	})
}
