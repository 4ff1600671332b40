package nbrun

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// selectable is a notebook whose cells 1 and 5 are Markdown.
var selectable = []*cell{
	{index: 0, handle: "setup"}, {index: 2, handle: "load-1"}, {index: 3, handle: "7"}, {index: 4, handle: "#4-0a1b2c3d"},
	{index: 6, handle: "3-4"}, {index: 7, handle: "plot"},
}

// dirtyFrom reports which cells are dirty: the one with the id 7.
func dirtyFrom(c *cell) bool { return c.handle == "7" }

func TestSelectCells(t *testing.T) {
	for selection, want := range map[string]string{
		"":                 "[0 1 2 3 4 5]",
		"plot, setup ,, 2": "[0 1 5]",
		"2 - 3":            "[1 2]",
		"6-99":             "[4 5]",
		"from: 5":          "[4 5]",
		"3-4":              "[4]",
		"7":                "[2]", // an id before an index
		"dirty,setup":      "[0 2 3 4 5]",
	} {
		chosen, err := selectCells(selection, selectable, dirtyFrom)
		got := []int{}
		for _, c := range chosen {
			got = append(got, slices.Index(selectable, c))
		}
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v, want %s", selection, got, err, want)
		}
	}
	clean := []*cell{{index: 0, handle: "a"}}
	if got, err := selectCells("dirty", clean, dirtyFrom); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSelectionsThatNameNothingAreRefused(t *testing.T) {
	for selection, want := range map[string]string{
		"plto":                 `no code cell has the id "plto" (did you mean "plot"?): use all, dirty, ids, indexes counted from 0`,
		"1":                    `"1" names no code cell that can run: indexes count from 0, over all cells, and the code cells are from 0 to 7`,
		"4-2":                  `"4-2" names no code cell`,
		"99999999999999999999": `no code cell has the id "99999999999999999999"`,
	} {
		if got, err := selectCells(selection, selectable, dirtyFrom); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", selection, got, err, want)
		}
	}
}
