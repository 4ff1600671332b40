package terminal

import (
	"bytes"
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
