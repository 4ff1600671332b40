package nbrun

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"colabrelay/relay/suggest"
)

// Words of a selection.
const (
	selectAll   = "all"
	selectDirty = "dirty"
	selectFrom  = "from:"
)

// selectionParts returns the parts of a selection, which commas separate; an empty selection
// means all.
func selectionParts(selection string) (parts []string) {
	for part := range strings.SplitSeq(selection, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	if parts == nil {
		return []string{selectAll}
	}
	return parts
}

// span is a range of indexes in the notebook, both ends included.
type span struct{ first, last int }

func (s span) has(c *cell) bool { return c.index >= s.first && c.index <= s.last }

// selectCells returns the cells that the selection names, in the order of the notebook: all; dirty
// (from the first dirty cell to the end); ids; ranges of indexes such as 3-7, both ends included;
// from:ID; and several of these separated by commas. An id goes before an index that looks like it.
// The error is an ErrSpec that says what to write instead.
func selectCells(selection string, cells []*cell, dirty func(*cell) bool) (chosen []*cell, err error) {
	var spans []span
	for _, part := range selectionParts(selection) {
		s, err := spanOf(part, cells, dirty)
		if err != nil {
			return nil, wrong("cells", "%v", err)
		}
		spans = append(spans, s)
	}
	for _, c := range cells {
		if slices.ContainsFunc(spans, func(s span) bool { return s.has(c) }) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// spanOf returns which cells one part of a selection names.
func spanOf(part string, cells []*cell, dirty func(*cell) bool) (span, error) {
	start, isFrom := strings.CutPrefix(part, selectFrom)
	start = strings.TrimSpace(start)
	s, isRange := indexes(start)
	at := slices.IndexFunc(cells, func(c *cell) bool { return c.handle == start })
	switch {
	case at >= 0:
		s = span{cells[at].index, cells[at].index}
	case part == selectAll:
		return span{0, math.MaxInt}, nil
	case part == selectDirty:
		if at = slices.IndexFunc(cells, dirty); at < 0 {
			return span{0, -1}, nil
		}
		return span{cells[at].index, math.MaxInt}, nil
	case !isRange || isFrom && s.first != s.last:
		return s, unknownCell(start, cells)
	}
	if isFrom {
		s.last = math.MaxInt
	}
	switch {
	case slices.ContainsFunc(cells, s.has):
		return s, nil
	case len(cells) == 0:
		return s, fmt.Errorf("%q names no code cell: the notebook has none that is not blank", part)
	}
	return s, fmt.Errorf("%q names no code cell that can run: indexes count from 0, over all cells, and the code cells are from %d to %d", part, cells[0].index, cells[len(cells)-1].index)
}

// indexes reads an index, or two with a hyphen between them.
func indexes(part string) (s span, ok bool) {
	begin, end, isRange := strings.Cut(part, "-")
	if !isRange {
		end = begin
	}
	first, err := strconv.Atoi(strings.TrimSpace(begin))
	last, wrong := strconv.Atoi(strings.TrimSpace(end))
	return span{first, last}, err == nil && wrong == nil && first >= 0
}

// unknownCell says that no code cell has this id, and which id may be meant.
func unknownCell(handle string, cells []*cell) error {
	known := []string{selectAll, selectDirty}
	for _, c := range cells {
		known = append(known, c.handle)
	}
	return fmt.Errorf("no code cell has the id %.80q%s: use all, dirty, ids, indexes counted from 0 such as 4 or 3-7 (7 is included), or from:ID, and commas between several of them", handle, suggest.Meant(handle, known))
}
