package cells

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/memory"
)

// ListArgs say which cells are listed.
type ListArgs struct {
	Start   int64  `json:"cellIndexStart" default:"0" min:"0" doc:"First cell."`
	Limit   int64  `json:"limit" default:"50" min:"1" max:"1000" doc:"Most cells."` // 0: all
	Cell    string `json:"cellId" arg:"[ID]" complete:"cells" default:"" max:"200" doc:"Only this cell, with whole outputs and pictures."`
	Outputs bool   `json:"includeOutputs" default:"true" doc:"Previews of outputs."`
	Query   string `json:"query" flag:"query" usage:"only cells whose source has this 'TEXT', in any case, or matches /REGEX/" default:"" max:"500" doc:"Only cells whose source has this text, in any case, or matches /regex/."`
}

// ForModel bounds what is listed for a model, which also gets outputs.
type ForModel struct {
	Bytes   int // of a list, as JSON
	Picture int // of a picture that is shown
	Held    *memory.Holding
}

// Bounds of what a model gets, in characters.
const (
	listSource  = 4_000  // of a cell's source in a list
	WholeSource = 22_000 // of the one cell that is asked for, or that was deleted
	MaxTitle    = 200
	maxTags     = 20
	maxTagRunes = 80
	maxParams   = 50
)

// Listing is a notebook with some of its cells.
type Listing struct {
	Path      string   `json:"path,omitempty"`     // of a file
	NBFormat  string   `json:"nbformat,omitempty"` // of a file
	Language  string   `json:"language,omitempty"` // of a file; the page tells none
	Digest    string   `json:"digest"`             // of the file, or of the cells in the tab, for expect_digest
	CellCount int      `json:"cell_count"`
	Cells     []Cell   `json:"cells,omitzero"`
	Truncated bool     `json:"truncated"`            // more cells follow, from next_index on
	NextIndex int      `json:"next_index,omitempty"` // where the next list begins
	Notes     []string `json:"notes,omitempty"`

	Pictures []render.Picture `json:"-"`
}

// Cell is a cell in a list.
type Cell struct {
	Index          int              `json:"index"`
	ID             string           `json:"id"`
	Type           string           `json:"cell_type"`
	Source         string           `json:"source"` // for a model, head and tail if it is long
	Title          string           `json:"title,omitempty"`
	Params         []notebook.Param `json:"params,omitempty"`
	Tags           []string         `json:"tags,omitempty"`
	State          string           `json:"state,omitempty"` // of a code cell: never_run, clean, dirty, failed, queued or running
	ExecutionCount int              `json:"execution_count,omitempty"`
	Outputs        []Output         `json:"outputs,omitempty"`
	Omitted        string           `json:"omitted,omitempty"` // what of the cell is not shown

	Headline string `json:"-"`
}

// List lists cells: for a model within bounds, and else all of their sources without outputs.
func List(ctx context.Context, nb Notebook, a ListArgs, m *ForModel) (*Listing, error) {
	matches, err := newQuery(a.Query)
	if err != nil {
		return nil, err
	}
	s, err := nb.read(ctx)
	if err != nil {
		return nil, err
	}
	l := &lister{ctx: ctx, snapshot: s, model: m, got: &Listing{Path: s.path, Digest: s.digest, CellCount: s.doc.Len(), Notes: s.notes}}
	if s.tab == nil {
		l.got.NBFormat, l.got.Language = fmt.Sprintf("4.%d", s.doc.Minor()), plain.Clip(s.doc.Language(), maxTagRunes)
	}
	if a.Cell != "" {
		err = l.one(a.Cell)
	} else {
		l.all(a, matches)
	}
	if len(l.hidden) > 0 {
		l.got.Notes = append(l.got.Notes, fmt.Sprintf("control and invisible characters and halves of surrogate pairs are not shown here, but stay in the file; an edit of another part of the source keeps them; cells with some: %s", strings.Join(l.hidden[:min(len(l.hidden), 5)], ", ")))
	}
	return l.got, err
}

// lister makes a list.
type lister struct {
	ctx context.Context
	*snapshot
	model  *ForModel
	got    *Listing
	hidden []string // ids of cells with characters that are not shown
}

// one lists one whole cell.
func (l *lister) one(name string) error {
	at, err := l.doc.find(name)
	if err != nil {
		return err
	}
	cell := l.doc.Cell(at)
	v := l.view(cell, WholeSource)
	if l.model != nil {
		err = l.show(&v, cell, wholeOutputs)
	}
	l.got.Cells = []Cell{v}
	return err
}

// all lists the cells that match, as many as fit.
func (l *lister) all(a ListArgs, matches func(source string) bool) {
	used := 0
	l.got.Cells = []Cell{}
	i := int(min(a.Start, int64(l.doc.Len())))
	for ; i < l.doc.Len() && (a.Limit == 0 || len(l.got.Cells) < int(a.Limit)); i++ {
		cell := l.doc.Cell(i)
		if !matches(cell.Source) {
			continue
		}
		v := l.view(cell, listSource)
		if l.model != nil {
			if a.Outputs {
				if err := l.show(&v, cell, previewOutputs); err != nil {
					v.omit("outputs: " + plain.Line(err.Error()))
				}
			}
			size := jsonSize(v)
			if size+used > l.model.Bytes && len(l.got.Cells) > 0 {
				break
			}
			if used += size; used > l.model.Bytes {
				v.Outputs = nil
				v.omit("outputs")
			}
		}
		l.got.Cells = append(l.got.Cells, v)
	}
	if l.got.Truncated = i < l.doc.Len(); l.got.Truncated {
		l.got.NextIndex = i
	}
}

func jsonSize(v any) int {
	b, _ := json.Marshal(v) // of texts and numbers
	return len(b)
}

// view is a cell without its outputs.
func (l *lister) view(cell notebook.Cell, most int) Cell {
	v := Cell{Index: cell.Index, ID: cell.Handle, Type: string(cell.Type), Source: cell.Source, Title: cell.Title, Params: cell.Params, Tags: cell.Tags, ExecutionCount: cell.ExecutionCount, Headline: cell.Headline()}
	switch {
	case l.states != nil && l.states[cell.Index] != "":
		v.State = string(l.states[cell.Index])
	case cell.Type == notebook.Code && l.tab == nil:
		v.State = string(nbrun.NeverRun)
	}
	if l.model == nil {
		return v
	}
	source, cut := render.Clip(cell.Source, most)
	if cut {
		v.omit("the middle of the source")
	}
	if v.Source = plain.Text(source); v.Source != source || cell.Halves {
		l.hidden = append(l.hidden, cell.Handle)
	}
	v.Type, v.Title = plain.Clip(v.Type, maxTagRunes), plain.Clip(v.Title, MaxTitle)
	v.Tags, v.Params = v.Tags[:min(len(v.Tags), maxTags)], v.Params[:min(len(v.Params), maxParams)]
	for i, tag := range v.Tags {
		v.Tags[i] = plain.Clip(tag, maxTagRunes)
	}
	for i, p := range v.Params {
		v.Params[i] = notebook.Param{Name: plain.Clip(p.Name, maxTagRunes), Value: plain.Clip(p.Value, MaxTitle)}
	}
	return v
}

// omit adds what is not shown.
func (v *Cell) omit(what string) {
	if v.Omitted != "" && what != "" {
		what = ", " + what
	}
	v.Omitted += what
}

// maxRegex bounds the instructions of a compiled expression. Its time is in proportion to them
// and to the text.
const maxRegex = 5_000

// newQuery reads a query: a text in any case, or a regular expression between slashes, after which i
// ignores case.
func newQuery(query string) (matches func(source string) bool, err error) {
	pattern, isRegex := strings.CutPrefix(query, "/")
	end := strings.LastIndexByte(pattern, '/')
	if !isRegex || end < 1 || pattern[end+1:] != "" && pattern[end+1:] != "i" {
		text := strings.ToLower(query)
		return func(source string) bool { return strings.Contains(strings.ToLower(source), text) }, nil
	}
	pattern = "(?m" + pattern[end+1:] + ")" + pattern[:end]
	regex, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	parsed, _ := syntax.Parse(pattern, syntax.Perl) // as Compile did
	if program, err := syntax.Compile(parsed.Simplify()); err != nil || len(program.Inst) > maxRegex {
		return nil, fmt.Errorf("%w: its repetitions make it longer than %d steps", ErrQuery, maxRegex)
	}
	return regex.MatchString, nil
}
