package terminal

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"colabrelay/relay/plain"
)

// minColumn is the width to which the columns of a table shrink at most, in characters.
const minColumn = 8

// Column describes a column of a Table.
type Column struct {
	Title string
	Right bool                // aligns the cells to the right, for numbers
	Style func(string) string // colours a cell after it was padded; nil for none
}

// Table prints rows in columns. Its cells may come from a VM. On a terminal it shortens
// the widest columns so that each row fits into a line; elsewhere it shortens nothing,
// because programs may read it.
type Table struct {
	columns []Column
	rows    [][]string
}

// NewTable returns a table without rows.
func NewTable(columns ...Column) *Table {
	t := &Table{columns: columns}
	var titles []string
	for _, c := range columns {
		titles = append(titles, c.Title)
	}
	t.Add(titles...)
	return t
}

// Add adds a row. It has one cell for each column.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(t.columns))
	for i, cell := range cells {
		row[i] = plain.Line(cell)
	}
	t.rows = append(t.rows, row)
}

// Print writes the table, with the titles in the first line.
func (t *Table) Print(out io.Writer) error {
	widths := t.widths()
	if Is(out) {
		shrink(widths, Width(out)-2*(len(widths)-1))
	}
	var b strings.Builder
	for n, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			cell = ansi.Truncate(cell, widths[i], "…")
			pad := strings.Repeat(" ", widths[i]-ansi.StringWidth(cell))
			if t.columns[i].Style != nil && n > 0 {
				cell = t.columns[i].Style(cell)
			}
			if t.columns[i].Right {
				cell = pad + cell
			} else {
				cell += pad
			}
			line.WriteString(cell + "  ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := fmt.Fprint(out, b.String())
	return err
}

// Text returns the table for a model: a line each row, whose cells two spaces separate.
func (t *Table) Text() string {
	var b strings.Builder
	for _, row := range t.rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = cmp.Or(cell, "-")
		}
		b.WriteString(strings.Join(cells, "  ") + "\n")
	}
	return b.String()
}

func (t *Table) widths() []int {
	widths := make([]int, len(t.columns))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	return widths
}

// shrink takes from the widest columns until they fit into total characters.
func shrink(widths []int, total int) {
	for {
		sum, widest := 0, 0
		for i, w := range widths {
			sum += w
			if w > widths[widest] {
				widest = i
			}
		}
		if sum <= total || widths[widest] <= minColumn {
			return
		}
		widths[widest]--
	}
}
