package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
)

// An agent reads a cell, changes a line and writes all of it back.
func TestWhatIsNotShownOfACellIsNotLost(t *testing.T) {
	d := newDesk(t)
	for _, hidden := range []string{"\f", "\u2028", "\u200b", "\x1b[31m", "\u202e", "\ue000", "\u200d", "a\rb"} {
		source := "x = 1\n" + hidden + "y = 2\nz = '" + hidden + "'"
		d.put("n.ipynb", 5, codeCell("a", source))
		shown := d.cells("cellId", "a").Cells[0].Source
		if shown == source || plain.Text(shown) != shown {
			t.Fatalf("%q is shown as %q", source, shown)
		}
		before := d.read("n.ipynb")
		update := object{"notebook_path": "n.ipynb", "cellId": "a", "content": strings.Replace(shown, "1", "3", 1)}
		d.wants(codeBadRequest, "which keeps the rest", "update_cell", update)
		if d.read("n.ipynb") != before {
			t.Errorf("%q: the refused edit was written", hidden)
		}
		part := object{"notebook_path": "n.ipynb", "cellId": "a", "find": "x = 1", "content": "x = 3"}
		if p := d.call("update_cell", part).outcome(t).Error; p != nil || d.sourceOf("n.ipynb") != strings.Replace(source, "1", "3", 1) {
			t.Errorf("a part of %q: %+v", source, p)
		}
		update["content"] = strings.Replace(source, "1", "4", 1)
		if p := d.call("update_cell", update).outcome(t).Error; p != nil {
			t.Errorf("%q with the characters: %+v", hidden, p)
		}
		if got := d.sourceOf("n.ipynb"); got != update["content"] {
			t.Errorf("the cell has %q, want %q", got, update["content"])
		}
		if got := decode[DeletedCell](t, d.call("delete_cell", object{"notebook_path": "n.ipynb", "cellId": "a"}).Structured); !strings.Contains(strings.Join(got.Notes, " "), "characters that are not shown") {
			t.Errorf("a deleted cell: %+v", got)
		}
	}
}

// sourceOf returns the source of a notebook's only cell, as the file has it.
func (d desk) sourceOf(name string) string {
	d.t.Helper()
	doc, err := notebook.Parse([]byte(d.read(name)))
	if err != nil || doc.Len() != 1 {
		d.t.Fatalf("%s: %v", name, err)
	}
	return doc.Cell(0).Source
}

// The end of a line is a part of it that readers are not shown either.
func TestAnEditKeepsTheEndsOfLines(t *testing.T) {
	for _, c := range []struct{ source, find, content, want string }{
		{"a\r\nb\r\n", "", "c\nd", "c\r\nd"},
		{"a\r\nb\r\n", "", "c\r\nd\n", "c\r\nd\r\n"},
		{"a\r\nb\r\nc", "a\nb", "x\ny", "x\r\ny\r\nc"},
		{"a\nb", "a\nb", "x\ny", "x\ny"},
		{"a\nb", "", "x\r\ny", "x\r\ny"},
	} {
		if got, err := newSource(c.source, c.find, c.content); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	if _, err := newSource("a\r\nb\n", "", "a\nb\n"); err == nil || !strings.Contains(err.Error(), "U+000D") {
		t.Errorf("mixed ends: %v", err)
	}
}

func TestASourceThatWasNotShownWholeIsNotWrittenBack(t *testing.T) {
	d := newDesk(t)
	d.put("n.ipynb", 5, codeCell("a", strings.Repeat("x = 1\n", 2*listSource)))
	shown := d.cells().Cells[0].Source
	d.wants(codeBadRequest, "would lose the omitted lines", "update_cell", object{"notebook_path": "n.ipynb", "cellId": "a", "content": shown})
}

// Half a surrogate pair is shown as U+FFFD. The answer says so, and an edit beside it keeps it.
func TestHalvesOfSurrogatePairsStayInACell(t *testing.T) {
	d := newDesk(t)
	source := func(value string) string {
		return `{"cells":[{"cell_type":"code","id":"a","metadata":{},"execution_count":null,"outputs":[],"source":"x = 1\ny = '\ud83d` + value + `'"}],"metadata":{},"nbformat":4,"nbformat_minor":5}`
	}
	if err := os.WriteFile(filepath.Join(d.dir, "n.ipynb"), []byte(source("b")), 0o600); err != nil {
		t.Fatal(err)
	}
	got := d.cells("cellId", "a")
	if !strings.Contains(strings.Join(got.Notes, " "), "halves of surrogate pairs") || !strings.Contains(got.Cells[0].Source, "'\ufffdb'") {
		t.Errorf("%+v", got)
	}
	part := object{"notebook_path": "n.ipynb", "cellId": "a", "find": "b'", "content": "c'"}
	if p := d.call("update_cell", part).outcome(t).Error; p != nil || d.read("n.ipynb") != source("c") {
		t.Errorf("%+v, %s", p, d.read("n.ipynb"))
	}
	whole := object{"notebook_path": "n.ipynb", "cellId": "a", "content": "x = 2\ny = '\ufffdd'"}
	d.wants(codeBadRequest, "halves of surrogate pairs", "update_cell", whole)
	if d.read("n.ipynb") != source("c") {
		t.Errorf("the refused edit was written: %s", d.read("n.ipynb"))
	}
	if got := decode[DeletedCell](t, d.call("delete_cell", object{"notebook_path": "n.ipynb", "cellId": "a"}).Structured); !strings.Contains(strings.Join(got.Notes, " "), "not shown") {
		t.Errorf("a deleted cell: %+v", got)
	}
}
