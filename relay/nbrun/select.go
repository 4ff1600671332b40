package nbrun

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"colabrelay/relay/suggest"
)

// Words of a selection.
const (
	selectAll   = "all"
	selectDirty = "dirty"
	selectStale = "stale"
	selectFrom  = "from:"
)

// selectionHelp says what a selection may be.
const selectionHelp = "use all, dirty, stale, ids, indexes counted from 0 such as 4 or 3-7 (7 is included), or from:ID, and commas between several of them"

// candidate is a code cell that is not blank, as selectCells sees it.
type candidate struct {
	Index  int // in the notebook, from 0
	Handle string
	Dirty  bool // it is dirty; only if needsFacts
	Stale  bool // it is dirty or uses what a dirty cell makes; only if needsFacts
}

// needsFacts reports whether a selection depends on which cells are dirty.
func needsFacts(selection string) bool {
	parts := selectionParts(selection)
	return slices.Contains(parts, selectDirty) || slices.Contains(parts, selectStale)
}

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

// selectCells returns the positions in cells of those that the selection names, in the order of
// the notebook: all; dirty (from the first dirty cell to the end); stale; ids; ranges of indexes
// such as 3-7, both ends included; from:ID; and several of these separated by commas. An id goes
// before an index that looks like it. The error is an ErrSpec that says what to write instead.
func selectCells(selection string, cells []candidate) ([]int, error) {
	chosen := map[int]bool{}
	for _, part := range selectionParts(selection) {
		test, err := partTest(part, cells)
		if err != nil {
			return nil, wrong("cells", "%v", err)
		}
		for i, c := range cells {
			if test(c) {
				chosen[i] = true
			}
		}
	}
	var positions []int
	for i := range cells {
		if chosen[i] {
			positions = append(positions, i)
		}
	}
	return positions, nil
}

// partTest returns which cells one part of a selection names.
func partTest(part string, cells []candidate) (func(candidate) bool, error) {
	byHandle := func(handle string) int {
		return slices.IndexFunc(cells, func(c candidate) bool { return c.Handle == handle })
	}
	if at := byHandle(part); at >= 0 {
		return between(cells[at].Index, cells[at].Index), nil
	}
	switch part {
	case selectAll:
		return func(candidate) bool { return true }, nil
	case selectStale:
		return func(c candidate) bool { return c.Stale }, nil
	case selectDirty:
		first := slices.IndexFunc(cells, func(c candidate) bool { return c.Dirty })
		if first < 0 {
			return func(candidate) bool { return false }, nil
		}
		return fromIndex(cells[first].Index), nil
	}
	if start, ok := strings.CutPrefix(part, selectFrom); ok {
		start = strings.TrimSpace(start)
		if at := byHandle(start); at >= 0 {
			return fromIndex(cells[at].Index), nil
		}
		first, err := strconv.Atoi(start)
		if err != nil || first < 0 {
			return nil, unknownCell(start, cells)
		}
		return someOf(cells, fromIndex(first), part)
	}
	if first, last, ok := indexes(part); ok {
		return someOf(cells, between(first, last), part)
	}
	return nil, unknownCell(part, cells)
}

func fromIndex(first int) func(candidate) bool {
	return func(c candidate) bool { return c.Index >= first }
}

func between(first, last int) func(candidate) bool {
	return func(c candidate) bool { return c.Index >= first && c.Index <= last }
}

// indexes reads an index, or two with a hyphen between them.
func indexes(part string) (first, last int, ok bool) {
	begin, end, isRange := strings.Cut(part, "-")
	first, err := strconv.Atoi(strings.TrimSpace(begin))
	if !isRange {
		return first, first, err == nil && first >= 0
	}
	last, wrong := strconv.Atoi(strings.TrimSpace(end))
	return first, last, err == nil && wrong == nil && first >= 0
}

// someOf refuses a test that no cell passes.
func someOf(cells []candidate, test func(candidate) bool, part string) (func(candidate) bool, error) {
	if slices.ContainsFunc(cells, test) {
		return test, nil
	}
	if len(cells) == 0 {
		return nil, fmt.Errorf("%q names no code cell: the notebook has none that is not blank", part)
	}
	return nil, fmt.Errorf("%q names no code cell that can run: indexes count from 0, over all cells, and the code cells are from %d to %d", part, cells[0].Index, cells[len(cells)-1].Index)
}

// unknownCell says that no code cell has this id, and which id may be meant.
func unknownCell(handle string, cells []candidate) error {
	known := []string{selectAll, selectDirty, selectStale}
	for _, c := range cells {
		known = append(known, c.Handle)
	}
	return fmt.Errorf("no code cell has the id %.80q%s: %s", handle, suggest.Meant(handle, known), selectionHelp)
}
