package notebook

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"colabrelay/relay/output"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

func TestTheCellsOfANotebook(t *testing.T) {
	d := parsed(t, "\ufeff"+`{"metadata": {"kernelspec": {"language": "python"}, "language_info": {"name": "ipython"}},
	"nbformat_minor": 5, "nbformat": 4, "cells": [
	{"cell_type": "markdown", "id": "a", "source": "# no code\n#@title none", "metadata": {"tags": ["x", 1, "y"]}},
	{"cell_type": "code", "id": "b", "source": ["%pip install x\n", "!ls\n", "x = 1"], "outputs": [{"output_type": "stream", "text": ["y"]}], "execution_count": 12},
	{"cell_type": "raw", "source": null, "id": "c", "metadata": {"tags": "x"}},
	{"cell_type": "code", "id": "d", "source": "print('ü\ud83d\ude00\udc00')", "outputs": [ ], "execution_count": null},
	{"cell_type": "code", "id": "e", "source": [], "outputs": [{"data": {"application/json": [NaN, -Infinity, Infinity, "NaN\\"]}}]}]}`)
	want := []Cell{
		{Index: 0, Handle: "a", Type: Markdown, Source: "# no code\n#@title none", Tags: []string{"x", "y"}},
		{Index: 1, Handle: "b", Type: Code, Source: "%pip install x\n!ls\nx = 1", ExecutionCount: 12, Outputs: []byte(`[{"output_type": "stream", "text": ["y"]}]`)},
		{Index: 2, Handle: "c", Type: Raw},
		{Index: 3, Handle: "d", Type: Code, Source: "print('ü😀\ufffd')", Halves: true},
		{Index: 4, Handle: "e", Type: Code, Outputs: []byte(`[{"data": {"application/json": [NaN, -Infinity, Infinity, "NaN\\"]}}]`)},
	}
	for i, want := range want {
		if got := d.Cell(i); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if d.Len() != len(want) || d.Minor() != 5 || !d.IsPython() || d.Language() != "ipython" || len(d.Digest()) != 64 {
		t.Errorf("%d cells, 4.%d, %s", d.Len(), d.Minor(), d.Language())
	}
	for metadata, python := range map[string]bool{
		`{"language_info": {"name": "plaintext"}}`: true, `{"language_info": {"name": "plaintext"}, "kernelspec": {"name": "python3"}}`: true,
		`{"language_info": {"name": "plaintext"}, "kernelspec": {"name": "ir"}}`: false, `{"language_info": {"name": "R"}}`: false,
	} {
		if d := parsed(t, `{"nbformat": 4, "metadata": `+metadata+`, "cells": []}`); d.IsPython() != python {
			t.Errorf("%s: %s", metadata, d.Language())
		}
	}
}

// Python takes the last of two equal keys, and so does an edit.
func TestOfEqualKeysTheLastCounts(t *testing.T) {
	d := parsed(t, `{"nbformat": 3, "nbformat": 4, "cells": [{}], "cells": [{"source": "a", "cell_type": "raw", "source": "b", "cell_type": "code", "outputs": [1], "outputs": []}]}`)
	if c := d.Cell(0); d.Len() != 1 || c.Source != "b" || c.Type != Code || c.Outputs != nil {
		t.Errorf("%+v", c)
	}
	must(t, d.SetSource(0, "c", Markdown))
	want := `{"nbformat": 3, "nbformat": 4, "cells": [{}], "cells": [{"source": "a", "cell_type": "raw", "source": "c", "cell_type": "markdown"}]}`
	if got := string(d.Bytes()); got != want {
		t.Error(got)
	}
}

func TestWhatIsNoNotebook(t *testing.T) {
	for file, want := range map[string]struct {
		err  error
		text string
	}{
		"print(1)":                                          {ErrNotNotebook, "at byte 0, in line 1"},
		"{\"nbformat\": 4,\n<<<<<<< HEAD\n":                 {ErrNotNotebook, "line 2 is a conflict marker of git"},
		"{}":                                                {ErrNotNotebook, "no format version"},
		`{"nbformat": 4, "cells": []`:                       {ErrNotNotebook, "it ends too early"},
		`{"nbformat": 4, "cells": []} x`:                    {ErrNotNotebook, "after top-level value at byte 29"},
		`{"nbformat": 4, "cells": [{},]}`:                   {ErrNotNotebook, "looking for beginning of value at byte 29, in line 1"},
		`{"nbformat": 5, "cells": []}`:                      {ErrOldFormat, "newer than this program"},
		`{"nbformat": 3, "worksheets": [{}]}`:               {ErrOldFormat, "open the notebook in Jupyter or Colab and save it"},
		`{"nbformat": 4, "cells": [-NaN]}`:                  {ErrNotNotebook, "in numeric literal"},
		`{"nbformat": 4, "cells": [], NaN: 1}`:              {ErrNotNotebook, "beginning of object key"},
		`[]`:                                                {ErrNotNotebook, "where an object is expected"},
		`{"nbformat": 4, "cells": {}}`:                      {ErrNotNotebook, "where a list of cells is expected"},
		`{"nbformat": 4, "cells": [{"source":7}]}`:          {ErrNotNotebook, "source is not text"},
		"{\"nbformat\": 4, \"cells\": [], \"a\": \"\n\"}":   {ErrNotNotebook, "in string literal"},
		`{"nbformat": 4, "cells": [], "a": "\u12g4"}`:       {ErrNotNotebook, "in \\u hexadecimal character escape"},
		`{"nbformat": 4, "cells": [], "a": 01}`:             {ErrNotNotebook, "invalid character '1'"},
		"{\"nbformat\": 4, \"cells\": [], \"a\": \"\xff\"}": {ErrNotNotebook, "UTF-8"},
	} {
		if d, err := Parse([]byte(file)); !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) || d != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestANotebookHasBounds(t *testing.T) {
	cells := func(n int, source string) string {
		return `{"nbformat":4,"cells":[` + strings.TrimSuffix(strings.Repeat(`{"cell_type":"code","source":`+source+`},`, n), ",") + `]}`
	}
	repeat := func(n int, text string) string { return strings.Repeat(text, n) }
	const small = 1000
	for name, test := range map[string]struct {
		fits, over string
		err        error
	}{
		"bytes":   {cells(0, "") + repeat(small-len(cells(0, "")), " "), cells(0, "") + repeat(small-len(cells(0, ""))+1, " "), bounded.ErrTooLong},
		"cells":   {cells(MaxCells, `""`), cells(MaxCells+1, `""`), bounded.ErrTooLong},
		"source":  {cells(2, `"`+repeat(MaxSourceBytes, "x")+`"`), cells(1, `"`+repeat(MaxSourceBytes+1, "x")+`"`), bounded.ErrTooLong},
		"nesting": {cells(1, `"", "a":`+repeat(maxNesting-3, "[")+repeat(maxNesting-3, "]")), cells(1, `"", "a":`+repeat(maxNesting-2, "[")+repeat(maxNesting-2, "]")), ErrNotNotebook},
	} {
		most := MaxBytes
		if name == "bytes" {
			most = small
		}
		if _, err := parseUpTo([]byte(test.fits), most); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := parseUpTo([]byte(test.over), most); !errors.Is(err, test.err) {
			t.Errorf("more %s: %v", name, err)
		}
	}
}

// parsed parses a notebook that is one.
func parsed(t *testing.T, text string) *Document {
	t.Helper()
	d, err := Parse([]byte(text))
	must(t, err)
	return d
}

func TestTagsAndParametersOfACellAreBounded(t *testing.T) {
	many := strings.Repeat(`"t",`, 2*maxTags) + `"t"`
	d, err := Parse([]byte(`{"cells": [{"cell_type": "code", "id": "a", "metadata": {"tags": [` + many + `]}, "outputs": [], "execution_count": null,
		"source": "` + strings.Repeat(`a = 1 #@param\n`, 2*maxParams) + `"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`))
	must(t, err)
	if c := d.Cell(0); len(c.Tags) != maxTags || len(c.Params) != maxParams || c.Params[0] != (Param{"a", "1"}) {
		t.Errorf("%d tags, %d parameters, the first %+v", len(c.Tags), len(c.Params), c.Params[0])
	}
}

// Escape sequences stand wherever a text can be cut within one.
func TestANotebookThatIsCutAnywhereIsRefused(t *testing.T) {
	whole := `{"metadata": {"kernelspec": {"name": "p\n3", "language": "\u0070y"}, "language_info": {"name": "i\b"}}, "nbformat": 4, "nbformat_minor": 5,
	"cells": [{"cell_type": "c\u006fde", "id": "a\b", "metadata": {"id": "\u0062", "tags": ["\ud83d\ude00"]}, "source": ["\\\n", "x"], "outputs": [{"t\"": -1.5e3}], "execution_count": 12}]}`
	parsed(t, whole)
	for i := range len(whole) {
		if _, err := Parse([]byte(whole[:i])); !errors.Is(err, ErrNotNotebook) {
			t.Fatalf("cut after %d bytes: %v", i, err)
		}
	}
}

// Whatever an executor sends, the notebook is JSON, has each source and text as its lines, and
// is read again as it was written.
func FuzzOutputs(f *testing.F) {
	f.Add("a\rb\n\u2028c", "image/png", `"cG5n"`, `{"a": 1}`)
	f.Add("\x00\xff", "application/json", `{"z": [1e999, null]}`, `[]`)
	f.Add("", "text/html", `["a", "b"]`, `{`)
	f.Fuzz(func(t *testing.T, text, mime, payload, metadata string) {
		events := []contract.Event{
			{Type: contract.EventStream, Name: text, Text: text},
			{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{mime: json.RawMessage(payload)}, Metadata: json.RawMessage(metadata), DisplayID: "d"},
			{Type: contract.EventUpdateDisplayData, DisplayID: "d", Data: map[string]json.RawMessage{"text/plain": json.RawMessage(payload)}},
			{Type: contract.EventError, EName: text, EValue: text, Traceback: []string{text}},
		}
		cell := new(output.Collector).Begin("")
		cell.Add(t.Context(), events, nil)
		file, err := Notebook{Cells: []RunCell{{Seed: text, Source: text, Outputs: cell.Outputs()}}}.Text()
		must(t, err)
		if !json.Valid(file) {
			t.Fatalf("no JSON: %s", file)
		}
		d, err := Parse(file)
		if err != nil || d.Len() != 1 {
			t.Fatal(err)
		}
		if c := d.Cell(0); c.Source != output.ValidText(text) || c.Handle != seededID(text, map[string]bool{}) {
			t.Fatalf("%+v", c)
		}
		if lines := output.SplitLines(text); strings.Join(lines, "") != output.ValidText(text) {
			t.Fatalf("%q has the lines %q", text, lines)
		}
	})
}

// Whatever a file holds, each edit leaves a notebook with the meant change, and an edit that is
// undone leaves the file as it was.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(odd), "a\r\n\u2028b", 0)
	f.Add([]byte(`{"nbformat": 4, "cells": [{}, {"source": null}, {"source": ["", "a"], "source": ["b\r", "\n", ""]}]}`), "\n", 2)
	f.Add([]byte(`{"nbformat":4,"nbformat_minor":5,"cells":[{"id":"a","cell_type":"code","outputs":[NaN,"\udc00"],"execution_count":3},{"id":"a","metadata":{"tags":["x",[]],"id":"b"}}]}`), "", 1)
	f.Add(New().Bytes(), "x = 1\n\"\\\x00\xff", 0)
	f.Fuzz(func(t *testing.T, text []byte, source string, i int) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		for k := range d.Len() {
			c := d.Cell(k)
			if found, err := d.Find(c.Handle); err != nil || found != k {
				t.Fatalf("%q is found at %d: %v", c.Handle, found, err)
			}
		}
		if d.Len() > 0 {
			i = max(0, i%d.Len())
			undo(t, *d, i)
			replace(t, *d, i, source)
		}
		whole(t, *d)
	})
}

// undo makes edits and undoes them.
func undo(t *testing.T, d Document, i int) {
	before := string(d.Bytes())
	must(t, func() error { _, err := d.Insert(i, NewCell{Type: Code, Source: "a"}); return err }())
	if d.Cell(i).Source != "a" {
		t.Fatalf("%q", d.Bytes())
	}
	must(t, d.Delete(i))
	must(t, d.Move(i, 0))
	must(t, d.Move(0, i))
	must(t, d.SetSource(i, d.Cell(i).Source, ""))
	if string(d.Bytes()) != before {
		t.Fatalf("%q became %q", before, d.Bytes())
	}
}

// replace changes a cell, and no other one.
func replace(t *testing.T, d Document, i int, source string) {
	before := d
	if err := d.SetSource(i, source, Code); !errors.Is(err, ErrHalves) {
		must(t, err)
	} else {
		return
	}
	must(t, d.SetOutputs([]NewOutputs{{Index: i, ExecutionCount: 3, Outputs: []map[string]any{{"a": source}}}}, d.most))
	must(t, d.SetSource(i, source, Raw))
	c := d.Cell(i)
	if c.Source != output.ValidText(source) || c.Type != Raw || c.Outputs != nil || c.ExecutionCount != 0 {
		t.Fatalf("%+v", c)
	}
	if former, now := before.cells[i].all, d.cells[i].all; string(before.text[:former.start]) != string(d.text[:now.start]) || string(before.text[former.end:]) != string(d.text[now.end:]) {
		t.Fatalf("%q became %q", before.text, d.text)
	}
	if raw := d.source(i); raw != before.source(i) {
		err := d.SetSource(i, before.source(i), "")
		if !errors.Is(err, ErrHalves) && (err != nil || d.source(i) != before.source(i)) {
			t.Fatalf("%q, %v", d.source(i), err)
		}
	}
}

// whole makes the edits of whole notebooks.
func whole(t *testing.T, d Document) {
	cells := d.Len()
	d.Strip()
	_, _ = d.Upgrade() // the file may become too long
	if d.Minor() < minor || d.Len() != cells || len(d.RepairIDs()) > 0 {
		t.Fatalf("%q", d.Bytes())
	}
	for i := range cells {
		if c := d.Cell(i); c.Type == Code && c.Outputs != nil || c.Handle != d.cells[i].own {
			t.Fatalf("%+v of %q", c, d.Bytes())
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The first cell's outputs have room, and the second one's have not. When they become shorter, they
// have.
func TestOutputsWithoutRoomAreReplaced(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte(`{"cells": [
 {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": null, "outputs": [], "source": "1"},
 {"cell_type": "code", "id": "b", "metadata": {}, "execution_count": null, "outputs": [], "source": "2"}
], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`))
	must(t, err)
	stream := func(text string) []map[string]any {
		return []map[string]any{{"output_type": "stream", "name": "stdout", "text": text}}
	}
	most := len(d.Bytes()) + 1000
	set := func(outputs ...string) {
		t.Helper()
		var all []NewOutputs
		for i, text := range outputs {
			all = append(all, NewOutputs{Index: i, Outputs: stream(text), Instead: stream("elsewhere")})
		}
		must(t, d.SetOutputs(all, most))
		if len(d.Bytes()) > most {
			t.Errorf("the file has %d bytes, of at most %d", len(d.Bytes()), most)
		}
	}
	for _, c := range []struct{ first, second, want string }{
		{strings.Repeat("x", 600), strings.Repeat("y", 600), "elsewhere"},
		{"x", strings.Repeat("y", 600), strings.Repeat("y", 600)},
	} {
		set(c.first, c.second)
		if text := string(d.Bytes()); !strings.Contains(text, `"`+c.first+`"`) || !strings.Contains(text, `"`+c.want+`"`) || strings.Count(text, "output_type") != 2 {
			t.Errorf("the file is %s", text)
		}
	}
}
