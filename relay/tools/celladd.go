package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
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

// addition is a cell to add.
type addition struct {
	editArgs
	place
	cell     notebook.NewCell
	language string // of a code cell
}

// check refuses a code cell of another language than the notebook's.
func (a addition) check(d *notebook.Document) error {
	if a.cell.Type != notebook.Code || d.Len() == 0 && d.IsPython() || strings.EqualFold(a.language, d.Language()) || strings.EqualFold(a.language, "python") && d.IsPython() {
		return nil
	}
	return &Problem{
		Code:    string(contract.CodeNotSupported),
		Message: fmt.Sprintf("the notebook's language is %s, not %s", plain.Clip(d.Language(), 40), plain.Clip(a.language, 40)),
		Hint:    "Give the notebook's own language, or use another notebook. Only Python cells can be run.",
	}
}

// tabLanguages are the languages of code cells that Colab's page knows.
var tabLanguages = []string{"python", "r", "julia"}

// checkTab refuses a code cell in a language that Colab does not know. The page does not tell the
// notebook's language.
func (a addition) checkTab(*notebook.Document) error {
	if a.cell.Type != notebook.Code || slices.Contains(tabLanguages, strings.ToLower(a.language)) {
		return nil
	}
	return &Problem{
		Code: codeBadRequest, Message: fmt.Sprintf("bad arguments: Colab has no language %q", clipName(a.language)), Hint: "Use python, r or julia, or omit language.",
	}
}

// inTab asks the page for the cell and returns its id.
func (a addition) inTab(ctx context.Context, tab *page.Tab, at int) (id string, err error) {
	if a.cell.Type == notebook.Code {
		return tab.AddCode(ctx, at, strings.ToLower(a.language), a.cell.Source)
	}
	return tab.AddText(ctx, at, a.cell.Source)
}

// add adds a cell.
func (c *call) add(ctx context.Context, a addition) (*AddedCell, *Problem) {
	if problem := a.place.check(); problem != nil {
		return nil, problem
	}
	check := a.check
	if c.inTab(a.Path) {
		check = a.checkTab
	}
	got := &AddedCell{}
	var id string // the page's
	edited, problem := c.edit(ctx, a.editArgs, cellEdit{
		create: true,
		change: func(d *notebook.Document) (func() error, error) {
			if err := check(d); err != nil {
				return nil, err
			}
			at, err := a.in(d)
			got.CellIndex = at
			return func() error {
				got.NewCellID, err = d.Insert(at, a.cell)
				return err
			}, err
		},
		inTab: func(ctx context.Context, n *tabNotebook) (err error) {
			id, err = a.inTab(ctx, n.tab, got.CellIndex)
			return err
		},
		found: func(n *tabNotebook) {
			got.NewCellID = plain.Line(id) // unless another edit removed it already
			if at := slices.IndexFunc(n.cells, func(cell page.Cell) bool { return cell.ID == id }); at >= 0 {
				got.CellIndex, got.NewCellID = at, n.doc.Cell(at).Handle
			}
		},
		diff: func() string {
			return sourceDiff("/dev/null", cellName(got.CellIndex, got.NewCellID), "", a.cell.Source)
		},
		did: func() string {
			return fmt.Sprintf("%s %s is new", a.cell.Type, cellName(got.CellIndex, got.NewCellID))
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
	Language string `json:"language" default:"python" max:"40" rare:"" doc:"The notebook's language."`
}

func addCodeCell() tool {
	return define(spec{
		name: "add_code_cell", title: "Add a code cell",
		summary:     "adds a code cell; creates a missing notebook",
		description: "Adds a code cell; a missing file is created. run_code_cell with its id runs it.",
		local:       true,
	}, func(ctx context.Context, c *call, args addCodeArgs) (*AddedCell, *Problem) {
		return c.add(ctx, addition{args.editArgs, place{args.Index, args.After}, notebook.NewCell{Type: notebook.Code, Source: args.Code}, args.Language})
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
		description: "Adds a Markdown cell; a missing file is created.",
		local:       true,
	}, func(ctx context.Context, c *call, args addTextArgs) (*AddedCell, *Problem) {
		return c.add(ctx, addition{args.editArgs, place{args.Index, args.After}, notebook.NewCell{Type: notebook.Markdown, Source: args.Content}, ""})
	})
}
