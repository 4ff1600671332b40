package tools

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/e2e/standin"
)

func TestEachEditChangesTheTab(t *testing.T) {
	d := connected(t, standin.Options{Notebook: standin.NewNotebook(cell("a", "x = 1\nprint(x)", standin.Stream("1")), standin.Cell{Type: "markdown", ID: "b", Source: []string{"text"}})})
	edit := func(tool, want string, pairs ...any) json.RawMessage {
		t.Helper()
		before := d.sources()
		dry := d.ask(tool, append(pairs, "dry_run", true)...)
		if d.sources() != before || !strings.Contains(dry.Content[0].Text, "Nothing was written") {
			t.Errorf("%s: dry_run: %s", tool, dry.Structured)
		}
		digest := d.cells().Digest
		r := d.ask(tool, append(pairs, "expect_digest", digest)...)
		tried, done := decode[Edited](t, dry.Structured), decode[Edited](t, r.Structured)
		if dry.IsError || r.IsError || tried.Diff != done.Diff && tool[:3] != "add" || tried.CellCount != done.CellCount {
			t.Errorf("%s: dry %s\nreal %s", tool, dry.Structured, r.Structured)
		}
		for _, notes := range [][]string{tried.Notes, done.Notes} {
			if !slices.Equal(notes, []string{noLockNote}) {
				t.Errorf("%s: notes %q", tool, notes)
			}
		}
		if now := d.cells(); now.Digest != done.Digest || now.CellCount != done.CellCount {
			t.Errorf("%s: %+v, read %+v", tool, done, now)
		}
		if got := d.sources(); got != want {
			t.Errorf("%s: the tab has %q, want %q", tool, got, want)
		}
		d.refused(d.ask(tool, append(pairs, "expect_digest", digest)...), "changed", "get_cells")
		return r.Structured
	}
	got := edit("update_cell", "x = 2\nprint(x)|text", "cellId", "a", "find", "x = 1", "content", "x = 2")
	if want := "--- cell 0 (id a)\n+++ cell 0 (id a)\n@@ -1,2 +1,2 @@\n-x = 1\n+x = 2\n print(x)\n"; decode[Edited](t, got).Diff != want {
		t.Errorf("diff %q", decode[Edited](t, got).Diff)
	}
	edit("move_cell", "text|x = 2\nprint(x)", "cellId", "a", "cellIndex", 1)
	edit("move_cell", "x = 2\nprint(x)|text", "cellId", "b", "cellIndex", -1)
	deleted := decode[DeletedCell](t, edit("delete_cell", "x = 2\nprint(x)", "cellId", "b"))
	if deleted.Source != "text" || !strings.Contains(deleted.Diff, "+++ /dev/null\n") {
		t.Errorf("%+v", deleted)
	}
	added := decode[AddedCell](t, edit("add_code_cell", "y|x = 2\nprint(x)", "code", "y", "cellIndex", 0))
	if cells := d.tab().Notebook.Cells(); added.NewCellID != cells[0].ID || added.CellIndex != 0 {
		t.Errorf("%+v", added)
	}
	edit("add_text_cell", "y|# T|x = 2\nprint(x)", "content", "# T", "afterCellId", added.NewCellID)
	edit("add_code_cell", "y|# T|x = 2\nprint(x)|z", "code", "z", "language", "R")
	if r := d.ask("update_cell", "cellId", "a", "content", "x = 2\nprint(x)"); !strings.Contains(string(r.Structured), "changes nothing") {
		t.Errorf("%s", r.Structured)
	}
}

// A person edits while a call waits for the page's answer.
func TestAPersonsEditInBetweenIsNoticed(t *testing.T) {
	notebook := standin.NewNotebook(cell("a", "1"), cell("b", "2"))
	d := connected(t, standin.Options{Notebook: notebook, Answer: func(tool string, _ json.RawMessage) (string, bool) {
		if tool == "update_cell" {
			notebook.Edit(func(cells []standin.Cell) []standin.Cell {
				cells[1].Source = []string{"a person's"}
				return cells
			})
		}
		return "", false
	}})
	r := d.ask("update_cell", "cellId", "a", "content", "3")
	if got := d.sources(); r.IsError || got != "3|a person's" || !strings.Contains(string(r.Structured), "somebody may have edited") {
		t.Errorf("%q %s", got, r.Structured)
	}
	if done := decode[Edited](t, r.Structured); done.Digest != d.cells().Digest {
		t.Error("the digest is not that of the tab")
	}
}

// A call that reads and then edits is not interleaved with another one of this relay.
func TestConcurrentEditsOfTheTabAllArrive(t *testing.T) {
	d := connected(t, standin.Options{Notebook: standin.NewNotebook(cell("a", "0"))})
	var waiting []<-chan message
	for range 20 {
		_, ch := d.begin("tools/call", map[string]any{"name": "add_code_cell", "arguments": object{"code": "x"}})
		waiting = append(waiting, ch)
	}
	ids := map[string]bool{}
	for _, ch := range waiting {
		r := d.result("add_code_cell", d.await(ch))
		added := decode[AddedCell](t, r.Structured)
		if r.IsError || ids[added.NewCellID] || strings.Contains(string(r.Structured), "somebody") {
			t.Errorf("%s", r.Structured)
		}
		ids[added.NewCellID] = true
	}
	if got := d.cells().CellCount; got != 21 {
		t.Errorf("%d cells, want 21", got)
	}
}
