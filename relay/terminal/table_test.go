package terminal

import (
	"bytes"
	"slices"
	"testing"
)

func TestTable(t *testing.T) {
	table := NewTable(Column{Title: "NAME"}, Column{Title: "SIZE", Right: true}, Column{Title: "", Style: Colours{on: true}.Good})
	table.Add("a", "12 B", "yes")
	table.Add("b\x1b[31m\nc日", "5 B")
	var out bytes.Buffer
	if err := table.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := "NAME   SIZE\na      12 B  \x1b[32myes\x1b[0m\nb c日   5 B\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestWideColumnsShrinkFirst(t *testing.T) {
	for _, c := range []struct{ widths, want []int }{
		{[]int{10, 30, 50}, []int{10, 20, 20}},
		{[]int{10, 10}, []int{10, 10}},
		{[]int{40, 40, 40, 40, 40, 40, 40, 40}, []int{8, 8, 8, 8, 8, 8, 8, 8}},
	} {
		got := slices.Clone(c.widths)
		shrink(got, 50)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v became %v, want %v", c.widths, got, c.want)
		}
	}
}
