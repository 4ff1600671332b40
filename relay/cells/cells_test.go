package cells

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/memory"
	"colabrelay/shared/within"
)

// cell is a code cell, or a Markdown cell whose id begins with "text".
func cell(id, source string, outputs ...map[string]any) standin.Cell {
	kind := "code"
	if strings.HasPrefix(id, "text") {
		kind = "markdown"
	}
	c := standin.NewCell(kind, source)
	c.ID, c.Outputs = id, outputs
	return c
}

// inFile is a notebook file with these cells.
func inFile(t *testing.T, all ...standin.Cell) File {
	t.Helper()
	list := []map[string]any{}
	for _, c := range all {
		one := map[string]any{"cell_type": c.Type, "id": c.ID, "metadata": map[string]any{}, "source": c.Source}
		if c.Type == "code" {
			one["outputs"], one["execution_count"] = append([]map[string]any{}, c.Outputs...), c.Count
		}
		list = append(list, one)
	}
	text, err := json.Marshal(map[string]any{"cells": list, "metadata": map[string]any{}, "nbformat": 4, "nbformat_minor": 5})
	if err != nil {
		t.Fatal(err)
	}
	return written(t, string(text))
}

// written is a notebook file with this content.
func written(t *testing.T, text string) File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n.ipynb")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := notebook.OpenFile(path, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return File{File: file, Records: t.TempDir()}
}

// inTab is a tab of a stand-in of Colab's page.
func inTab(t *testing.T, o standin.Options) Tab {
	t.Helper()
	p := page.New(page.Config{Version: "1", Open: func(ctx context.Context, url string) error {
		tab, err := standin.Dial(ctx, url, o)
		if err == nil {
			t.Cleanup(tab.Close)
		}
		return err
	}})
	t.Cleanup(p.Close)
	tab, err := p.Connect(t.Context(), page.Request{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Tab{Tab: tab, Editing: make(chan struct{}, 1)}
}

// inBoth runs a test on these cells in a file and in a tab.
func inBoth(t *testing.T, all []standin.Cell, test func(t *testing.T, nb Notebook)) {
	t.Run("file", func(t *testing.T) { test(t, inFile(t, all...)) })
	t.Run("tab", func(t *testing.T) {
		test(t, inTab(t, standin.Options{Notebook: standin.NewNotebook(all...)}))
	})
}

func read(t *testing.T, nb Notebook) *snapshot {
	t.Helper()
	s, err := nb.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sources are those of all cells, as they are now.
func sources(t *testing.T, nb Notebook) string {
	t.Helper()
	doc, all := read(t, nb).doc, []string{}
	for i := range doc.Len() {
		all = append(all, doc.Cell(i).Source)
	}
	return strings.Join(all, "|")
}

// forModel are a model's bounds.
func forModel(t *testing.T) *ForModel {
	held := &memory.Holding{}
	t.Cleanup(held.Done)
	return &ForModel{Bytes: 36_000, Picture: math.MaxInt, Held: held}
}

func list(t *testing.T, nb Notebook, a ListArgs) *Listing {
	t.Helper()
	got, err := List(t.Context(), nb, a, forModel(t))
	if err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	return got
}

func ids(c *Listing) string {
	var all []string
	for _, each := range c.Cells {
		all = append(all, each.ID)
	}
	return strings.Join(all, " ")
}

func picture(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString([]byte(b.String()))
}

func display(data map[string]any) map[string]any {
	return map[string]any{"output_type": "display_data", "metadata": map[string]any{}, "data": data}
}

func TestListShowsWhatACellHas(t *testing.T) {
	count := 2
	load := cell("load", "#@title Load data\nn = 3 #@param {type:\"integer\"}\nprint(n)",
		standin.Stream("a\nb\x1b[31m!\n"),
		display(map[string]any{"text/plain": strings.Repeat("x", 2000), "image/png": picture(t)}),
		display(map[string]any{"text/html": []string{"<b>x", "</b>"}, "application/json": map[string]any{"a": []any{1, nil}}}),
		map[string]any{"output_type": "error", "ename": "E", "evalue": "bad", "traceback": []string{"\x1b[0;31mTrace", "E: bad"}})
	load.Count = &count
	inBoth(t, []standin.Cell{cell("text", "# Title\ntext"), load}, func(t *testing.T, nb Notebook) {
		got := list(t, nb, ListArgs{Outputs: true})
		if got.CellCount != 2 || len(got.Digest) != 64 || got.Truncated || got.NextIndex != 0 || got.Cells[0].State != "" || got.Cells[0].Outputs != nil {
			t.Errorf("%+v", got)
		}
		one := got.Cells[1]
		if one.Index != 1 || one.ID != "load" || one.Type != "code" || one.Title != "Load data" || one.ExecutionCount != 2 || !slices.Equal(one.Params, []notebook.Param{{Name: "n", Value: "3"}}) || one.Omitted != "parts of 1 output" {
			t.Errorf("%+v", one)
		}
		if _, file := nb.(File); file && (one.State != "never_run" || got.NBFormat != "4.5" || got.Language != "python") {
			t.Errorf("%+v", got)
		}
		out := one.Outputs
		if len(out) != 4 || out[0].Text != "a\nb!\n" || out[0].Name != "stdout" || len(out[1].Text) > 600 || !strings.HasPrefix(out[1].Picture, "image/png of ") ||
			out[2].Text != "<b>x</b>" || !slices.Equal(out[2].MIMETypes, []string{"application/json", "text/html"}) || out[3].Text != "Trace\nE: bad" {
			t.Errorf("%+v", out)
		}
		if got := list(t, nb, ListArgs{}); got.Cells[1].Outputs != nil {
			t.Errorf("outputs %+v", got.Cells[1].Outputs)
		}
		whole := list(t, nb, ListArgs{Cell: "load"})
		if len(whole.Cells) != 1 || len(whole.Cells[0].Outputs[1].Text) != 2000 || whole.Cells[0].Omitted != "" || !strings.HasSuffix(whole.Cells[0].Outputs[1].Picture, "shown as picture 1") || len(whole.Pictures) != 1 {
			t.Errorf("%+v", whole)
		}
		if _, err := List(t.Context(), nb, ListArgs{Cell: "loat"}, nil); !errors.Is(err, notebook.ErrNoCell) {
			t.Error(err)
		}
	})
}

func TestListSearches(t *testing.T) {
	inBoth(t, []standin.Cell{cell("text", "Load DATA"), cell("b", "x = load()\ny = 2"), cell("c", "y = 3"), cell("d", "/etc/x")}, func(t *testing.T, nb Notebook) {
		for query, want := range map[string]string{"": "text b c d", "LOAD": "text b", "/load/": "b", "/LOAD/i": "text b", `/^y = \d$/`: "b c", "/etc/x": "d"} {
			if got := ids(list(t, nb, ListArgs{Query: query})); got != want {
				t.Errorf("%q: %s, want %s", query, got, want)
			}
		}
		for _, bad := range []string{"/(a/", "/((x{30}){30}y){20}/", "/(" + strings.Repeat("x{900}", 10) + ")/"} {
			if _, err := List(t.Context(), nb, ListArgs{Query: bad}, nil); !errors.Is(err, ErrQuery) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		if got := list(t, nb, ListArgs{Query: "y", Limit: 1}); got.NextIndex != 2 || !got.Truncated || ids(got) != "b" {
			t.Errorf("%+v", got)
		}
		if got := list(t, nb, ListArgs{Start: 3}); ids(got) != "d" || got.Truncated {
			t.Errorf("%+v", got)
		}
	})
}

func TestEachEditOfAFileAndOfATab(t *testing.T) {
	inBoth(t, []standin.Cell{cell("a", "x = 1\nprint(x)", standin.Stream("1")), cell("text", "text")}, func(t *testing.T, nb Notebook) {
		_, isTab := nb.(Tab)
		update := func(a UpdateArgs) func(How) (*Edited, error) {
			return func(h How) (*Edited, error) { a.How = h; return Update(t.Context(), nb, a) }
		}
		move := func(id string, to int64) func(How) (*Edited, error) {
			return func(h How) (*Edited, error) {
				return Move(t.Context(), nb, MoveArgs{How: h, Cell: id, Index: to})
			}
		}
		add := func(kind notebook.CellType, source, language string, p Place) func(How) (*Edited, error) {
			return func(h How) (*Edited, error) {
				return Add(t.Context(), nb, AddArgs{How: h, Place: p, Type: kind, Source: source, Language: language})
			}
		}
		remove := func(h How) (*Edited, error) { return Delete(t.Context(), nb, DeleteArgs{How: h, Cell: "text"}) }
		for _, step := range []struct {
			edit            func(How) (*Edited, error)
			want, did, diff string
		}{
			{update(UpdateArgs{Cell: "a", Find: "x = 1", Content: "x = 2"}), "x = 2\nprint(x)|text", "cell 0 (id a) is changed", "--- cell 0 (id a)\n+++ cell 0 (id a)\n@@ -1,2 +1,2 @@\n-x = 1\n+x = 2\n print(x)\n"},
			{move("a", 1), "text|x = 2\nprint(x)", "cell 1 (id a) was cell 0 before", "--- cell 0 (id a)\n+++ cell 1 (id a)\n"},
			{move("text", -1), "x = 2\nprint(x)|text", "cell 1 (id text) was cell 0 before", ""},
			{remove, "x = 2\nprint(x)", "markdown cell 1 (id text) is deleted: “text”", "+++ /dev/null\n"},
			{add(notebook.Code, "y", "python", Place{Index: 0}), "y|x = 2\nprint(x)", "code cell 0 (id ", "--- /dev/null\n"},
			{add(notebook.Markdown, "# T", "", Place{Index: -1, After: "a"}), "y|x = 2\nprint(x)|# T", "markdown cell 2 (id ", ""},
		} {
			before := sources(t, nb)
			tried, err := step.edit(How{DryRun: true})
			if err != nil || sources(t, nb) != before || !tried.DryRun {
				t.Fatalf("dry run: %+v %v", tried, err)
			}
			digest := read(t, nb).digest
			done, err := step.edit(How{Digest: digest})
			if err != nil {
				t.Fatal(err)
			}
			now := list(t, nb, ListArgs{})
			if now.Digest != done.Digest || now.CellCount != done.CellCount || tried.CellCount != done.CellCount || sources(t, nb) != step.want || !done.Changed ||
				!strings.HasPrefix(done.Did, step.did) || !strings.Contains(done.Diff, step.diff) || isTab != slices.Equal(done.Notes, []string{noLockNote}) {
				t.Errorf("%+v, but read %q of %s", done, sources(t, nb), now.Digest)
			}
			if gone := done.CellIndex == nil; gone != (done.Source == "text") || !gone && now.Cells[*done.CellIndex].ID != done.CellID {
				t.Errorf("%+v", done)
			}
			if _, err := step.edit(How{Digest: digest}); !errors.Is(err, notebook.ErrChanged) && !errors.Is(err, ErrTabChanged) {
				t.Errorf("an old digest: %v", err)
			}
		}
		before := sources(t, nb)
		if e, err := update(UpdateArgs{Cell: "a", Content: "x = 2\nprint(x)"})(How{}); err != nil || e.Changed || !slices.Equal(e.Notes, []string{unchanged}) {
			t.Errorf("%+v %v", e, err)
		}
		for name, refused := range map[string]struct {
			edit func(How) (*Edited, error)
			want error
		}{
			"no index":   {move("a", 3), notebook.ErrNoIndex},
			"no place":   {add(notebook.Code, "1", "python", Place{Index: 4}), notebook.ErrNoIndex},
			"two places": {add(notebook.Code, "1", "python", Place{Index: 0, After: "a"}), ErrPlace},
			"no text":    {update(UpdateArgs{Cell: "a", Find: "z", Content: "y"}), ErrFind},
			"two texts":  {update(UpdateArgs{Cell: "a", Find: "x", Content: "y"}), ErrFind},
			"a language": {add(notebook.Code, "1", "basic", Place{Index: -1}), ErrLanguage},
		} {
			if _, err := refused.edit(How{}); !errors.Is(err, refused.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := update(UpdateArgs{Cell: "a", Content: "x = 2\nprint(x)", Type: "markdown"})(How{}); isTab != errors.Is(err, ErrType) {
			t.Errorf("another type: %v", err)
		}
		if sources(t, nb) != before {
			t.Error("a refused edit was made: " + sources(t, nb))
		}
	})
}

// An agent reads a cell, changes a line and writes all of it back.
func TestWhatIsNotShownOfACellIsNotLost(t *testing.T) {
	for _, hidden := range []string{"\f", "\u2028", "\u200b", "\x1b[31m", "\u202e", "\ue000", "\u200d", "a\rb"} {
		source := "x = 1\n" + hidden + "y = 2\nz = '" + hidden + "'"
		inBoth(t, []standin.Cell{cell("a", source)}, func(t *testing.T, nb Notebook) {
			shown := list(t, nb, ListArgs{Cell: "a"})
			if text := shown.Cells[0].Source; text == source || plain.Text(text) != text || len(shown.Notes) == 0 {
				t.Fatalf("%q is shown as %+v", source, shown)
			}
			_, err := Update(t.Context(), nb, UpdateArgs{Cell: "a", Content: strings.Replace(shown.Cells[0].Source, "1", "3", 1)})
			if !errors.Is(err, ErrLoss) || sources(t, nb) != source {
				t.Errorf("%q: %v, and the cell has %q", hidden, err, sources(t, nb))
			}
			for _, u := range []UpdateArgs{{Cell: "a", Find: "x = 1", Content: "x = 3"}, {Cell: "a", Content: strings.Replace(source, "1", "3", 1)}} {
				if _, err := Update(t.Context(), nb, u); err != nil || sources(t, nb) != strings.Replace(source, "1", "3", 1) {
					t.Errorf("%+v: %v, and the cell has %q", u, err, sources(t, nb))
				}
			}
		})
	}
	f := inFile(t, cell("a", strings.Repeat("x = 1\n", 2*listSource)))
	if _, err := Update(t.Context(), f, UpdateArgs{Cell: "a", Content: list(t, f, ListArgs{}).Cells[0].Source}); !errors.Is(err, ErrLoss) {
		t.Errorf("a source that was not shown whole: %v", err)
	}
	whole := "x\f\r\n" // and seen so by somebody
	seen := inFile(t, cell("a", whole))
	if _, err := Update(t.Context(), seen, UpdateArgs{Cell: "a", Content: "y\nz", Seen: &whole}); err != nil || sources(t, seen) != "y\r\nz" {
		t.Errorf("%v, %q", err, sources(t, seen))
	}
	if _, err := Update(t.Context(), seen, UpdateArgs{Cell: "a", Content: "z", Seen: &whole}); !errors.Is(err, notebook.ErrCellChanged) {
		t.Error(err)
	}
	half := written(t, `{"cells":[{"cell_type":"raw","id":"a","metadata":{},"source":"\ud83d"}],"metadata":{},"nbformat":4,"nbformat_minor":5}`)
	if got := list(t, half, ListArgs{}); len(got.Notes) == 0 {
		t.Errorf("half a surrogate pair: %+v", got)
	}
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

// A person edits while a call waits for the page's answer.
func TestAPersonsEditInBetweenIsNoticed(t *testing.T) {
	book := standin.NewNotebook(cell("a", "1"), cell("b", "2"))
	tab := inTab(t, standin.Options{Notebook: book, Answer: func(tool string, _ json.RawMessage) (string, bool) {
		if tool == "update_cell" {
			book.Edit(func(cells []standin.Cell) []standin.Cell {
				cells[1].Source = []string{"a person's"}
				return cells
			})
		}
		return "", false
	}})
	e, err := Update(t.Context(), tab, UpdateArgs{Cell: "a", Content: "3"})
	if err != nil || sources(t, tab) != "3|a person's" || !slices.Equal(e.Notes, []string{surpriseNote}) || e.Digest != read(t, tab).digest {
		t.Errorf("%+v %v", e, err)
	}
}

// A call that reads and then edits is not interleaved with another one of this relay.
func TestConcurrentEditsOfTheTabAllArrive(t *testing.T) {
	tab := inTab(t, standin.Options{Notebook: standin.NewNotebook(cell("a", "0"))})
	added := make(chan string, 20)
	for range cap(added) {
		go func() {
			e, err := Add(t.Context(), tab, AddArgs{Place: Place{Index: -1}, Source: "x", Language: "python"})
			if err != nil || len(e.Notes) > 0 {
				added <- fmt.Sprint(e, err)
				return
			}
			added <- e.CellID
		}()
	}
	seen := []string{"a"}
	for range cap(added) {
		seen = append(seen, <-added)
	}
	got := strings.Fields(ids(list(t, tab, ListArgs{})))
	slices.Sort(seen)
	if slices.Sort(got); !slices.Equal(got, seen) {
		t.Errorf("%q, want %q", got, seen)
	}
}

// A hostile tab answers what it likes.
func TestAHostileTab(t *testing.T) {
	answers := map[string]string{}
	var asked []string
	tab := inTab(t, standin.Options{Answer: func(tool string, arguments json.RawMessage) (string, bool) {
		text, has := answers[tool]
		asked = append(asked, string(arguments))
		return text, has
	}})
	remove := func(id string) (*Edited, error) { return Delete(t.Context(), tab, DeleteArgs{Cell: id}) }
	answers["get_cells"] = `{"cells": [
		{"id": "a\u001b[31m\ncell 9 (id x): code", "cell_type": "code\ncell 7 (id y)", "source": ["1\u0007\u202e"]},
		{"id": "twice", "cell_type": "code", "source": ["2"], "execution_count": -7},
		{"id": "twice", "cell_type": "code", "source": ["3"]},
		{"id": "q\"'\\/", "cell_type": "raw", "source": "4"}]}`
	handles := strings.Fields(ids(list(t, tab, ListArgs{})))
	if len(handles) != 4 || !strings.HasPrefix(handles[0], "#0-") || handles[1] != "twice" || !strings.HasPrefix(handles[2], "#2-") || !strings.HasPrefix(handles[3], "#3-") {
		t.Fatalf("%q", handles)
	}
	for _, handle := range handles[1:3] { // the page would change the first of two cells with one id
		if _, err := remove(handle); !errors.Is(err, ErrSameID) {
			t.Errorf("%s: %v", handle, err)
		}
		if _, err := tab.Run(t.Context(), handle, 0); !errors.Is(err, ErrSameID) {
			t.Errorf("%s: run: %v", handle, err)
		}
	}
	answers["delete_cell"] = "{}"
	if e, err := remove(handles[3]); err != nil || !slices.Contains(asked, `{"cellId":"q\"'\\/"}`) || !slices.Equal(e.Notes, []string{surpriseNote}) {
		t.Errorf("%q %+v %v", asked, e, err)
	}
	answers["add_code_cell"] = `{"newCellId": "new\n\u001b[2J"}`
	e, err := Add(t.Context(), tab, AddArgs{Source: "1", Language: "R"})
	if err != nil || strings.ContainsAny(e.CellID+e.Did+e.Diff, "\x1b") || strings.Contains(e.CellID, "\n") || !slices.Equal(e.Notes, []string{surpriseNote}) {
		t.Errorf("%+v %v", e, err)
	}
}

func TestRunsInATab(t *testing.T) {
	finish := make(chan struct{})
	prints := standin.Fake(func(ctx context.Context, code string) []map[string]any {
		if code == "wait" {
			<-finish
		}
		return []map[string]any{standin.Stream("ran " + code)}
	})
	tab := inTab(t, standin.Options{Execute: prints, Notebook: standin.NewNotebook(cell("a", "1"), cell("text", "# T"), cell("w", "wait"))})
	if _, err := tab.Run(t.Context(), "text", 0); !errors.Is(err, ErrNotCode) {
		t.Error(err)
	}
	ran, err := tab.Run(t.Context(), "w", 0)
	if err != nil || !ran.Running || ran.Started.IsZero() || list(t, tab, ListArgs{}).Cells[2].State != "running" {
		t.Errorf("%+v %v", ran, err)
	}
	close(finish)
	if again, err := tab.Run(t.Context(), "w", within.Limit); err != nil || again.Running || again.Started != ran.Started || !strings.Contains(string(again.Outputs), "ran wait") {
		t.Errorf("%+v %v", again, err)
	}
	if got := list(t, tab, ListArgs{}).Cells[2]; got.State != "" || got.ExecutionCount == 0 {
		t.Errorf("%+v", got)
	}
	waiting := inTab(t, standin.Options{Execute: prints, RunAnyway: make(chan struct{}), Notebook: standin.NewNotebook(cell("a", "1"))})
	if _, err := waiting.Run(t.Context(), "a", within.Limit); !errors.Is(err, ErrNotRun) {
		t.Error(err)
	}
}

// FuzzOutputs reads any outputs of a cell, of a file or of Colab's page. What is shown is
// bounded and plain.
func FuzzOutputs(f *testing.F) {
	for _, seed := range []string{
		`[{"output_type":"stream","name":"stdout","text":["a\u001b[2J\n","b"]},{"output_type":"error","ename":"E","evalue":"v","traceback":["\u001b[31mt"]}]`,
		`[{"output_type":"display_data","data":{"image/png":"AAAA","text/plain":["\u202e"],"a\u0007":1,"text/x":{}}}]`,
		`[{"output_type":"display_data","data":{"image/png":{"blob":{"number":0,"sha256":"-","bytes":1}}}}]`,
		` [ {"text" : "a" , "text":["b"]} , 1 , "x" , [] , null ] `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, list []byte) {
		if !json.Valid(list) { // files and messages are read as JSON before
			return
		}
		var v Cell
		r := outputReader{ctx: t.Context(), doc: notebook.New(), bounds: previewOutputs, left: previewOutputs.all}
		r.readAll(&v, list)
		n := 0
		for _, o := range v.Outputs {
			if plain.Text(o.Text) != o.Text || len(o.MIMETypes) > maxListedTypes {
				t.Errorf("%s shows %+v", list, o)
			}
			n += utf8.RuneCountInString(o.Text + o.Name + o.Type + o.Picture + strings.Join(o.MIMETypes, ""))
		}
		if len(v.Outputs) > previewOutputs.outputs || n > 60_000 {
			t.Errorf("%d outputs of %d characters are shown", len(v.Outputs), n)
		}
		if v := View(t.Context(), render.New(render.Options{}), list); len(v.Outputs) > 100 {
			t.Errorf("%d outputs are shown", len(v.Outputs))
		}
	})
}
