package notebook

import (
	"errors"
	"math"
	"strings"
	"testing"

	"colabrelay/shared/bounded"
	"colabrelay/shared/tier"
)

// odd is a file as no program writes it: mixed white space and line ends, a byte order mark,
// needless escapes, lines that are split elsewhere, numbers that JSON does not have.
const odd = "\ufeff{ \"cells\":[\r\n" +
	"\t{\"cell_type\" : \"code\",\n  \"id\":\"\\u0061\",\"source\": [ \"one\\u002f\\n\",\r\n\"two\",  \" two\\n\" ,\"\\ud800\\n\",\"end\"],\n\n\"x\":-Infinity,\"outputs\":[{\"text\": NaN}], \"metadata\":{\"collapsed\":1E5}}  ,\n" +
	"{\"source\":\"a\\/b\", \"cell_type\":\"markdown\", \"metadata\":{}, \"attachments\": {}, \"id\": \"b\"}\n" +
	"\r\n], \"nbformat_minor\":5, \"nbformat\":4.0,  \"metadata\" : {} }\r\n\r\n"

func TestAnEditTouchesOnlyItsLines(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		edit     func(d *Document)
		old, new string
	}{
		"nothing":     {func(d *Document) { must(d.SetSource(0, d.Cell(0).Source, Code)); must(d.Move(1, 1)); d.RepairIDs() }, "", ""},
		"last line":   {func(d *Document) { must(d.SetSource(0, "one/\ntwo two\n\ufffd\nfin", "")) }, `"end"]`, `"fin"]`},
		"middle line": {func(d *Document) { must(d.SetSource(0, "one/\n2\n\ufffd\nend", "")) }, `"two",  " two\n" ,`, `"2\n" ,`},
		"first line":  {func(d *Document) { must(d.SetSource(0, "two two\n\ufffd\nend", "")) }, "\"one\\u002f\\n\",\r\n", ""},
		"more lines":  {func(d *Document) { must(d.SetSource(0, "one/\ntwo two\n\ufffd\nend\n2", "")) }, `"end"]`, "\"end\\n\",\r\n\"2\"]"},
		"half a line": {func(d *Document) { must(d.SetSource(0, "one/\ntwo", "")) }, "\"two\",  \" two\\n\" ,\"\\ud800\\n\",\"end\"]", `"two"]`},
		"no lines":    {func(d *Document) { must(d.SetSource(0, "", "")) }, "[ \"one\\u002f\\n\",\r\n\"two\",  \" two\\n\" ,\"\\ud800\\n\",\"end\"]", "[]"},
		"a string":    {func(d *Document) { must(d.SetSource(1, "a\nb", "")) }, `"a\/b"`, `"a\nb"`},
		"a type":      {func(d *Document) { must(d.SetSource(1, "a/b", Raw)) }, `"markdown"`, `"raw"`},
		"to code":     {func(d *Document) { must(d.SetSource(1, "a/b", Code)) }, `"markdown", "metadata":{}, "attachments": {}, `, `"code", "outputs":[], "metadata":{}, `},
		"to markdown": {func(d *Document) { must(d.SetSource(0, d.Cell(0).Source, Markdown)) }, `"outputs":[{"text": NaN}],`, ``},
		"outputs":     {func(d *Document) { must(d.SetOutputs(0, 0, nil)) }, `[{"text": NaN}], "metadata":{"collapsed":1E5}}`, "[], \"metadata\":{\"collapsed\":1E5},\n  \"execution_count\" : null}"},
		"strip":       {func(d *Document) { d.Strip() }, `[{"text": NaN}]`, "[]"},
	} {
		d := parsed(t, odd)
		test.edit(d)
		want := odd
		if test.old != "" {
			want = strings.Replace(odd, test.old, test.new, 1)
		}
		switch name { // which change two places
		case "to markdown":
			want = strings.Replace(want, `" : "code"`, `" : "markdown"`, 1)
		case "to code":
			want = strings.Replace(want, `"id": "b"`, `"id": "b", "execution_count":null`, 1)
		}
		if got := string(d.Bytes()); got != want {
			t.Errorf("%s: %q\nwant %q", name, got, want)
		}
	}
}

func TestAFailedEditChangesNothing(t *testing.T) {
	tier.Long(t)
	cell := `{"cell_type":"code","source":""}`
	full := parsed(t, `{"nbformat":4,"cells":[`+cell+strings.Repeat(","+cell, MaxCells-1)+`]}`)
	small := parsed(t, `{"nbformat":4,"cells":[`+cell+`, {"cell_type": "markdown"}]}`)
	small.most = len(small.Bytes()) + 10
	insert := func(d *Document, at int, c NewCell) error { _, err := d.Insert(at, c); return err }
	nested := any("x")
	for range maxNesting {
		nested = []any{nested}
	}
	outputs := func(value any) error { return small.SetOutputs(0, 1, []map[string]any{{"x": value}}) }
	long := strings.Repeat("x", 1000)
	for name, test := range map[string]struct {
		d    *Document
		err  error
		want error // nil for any
	}{
		"cells":            {full, insert(full, -1, NewCell{Type: Code}), bounded.ErrTooLong},
		"source":           {full, full.SetSource(0, strings.Repeat("x", MaxSourceBytes+1), ""), bounded.ErrTooLong},
		"file":             {small, small.SetSource(0, long, ""), bounded.ErrTooLong},
		"new cell":         {small, insert(small, 0, NewCell{Type: Raw, Source: long}), bounded.ErrTooLong},
		"upgrade":          {small, func() error { _, err := small.Upgrade(); return err }(), bounded.ErrTooLong},
		"nested output":    {small, outputs(nested), nil},
		"unknown value":    {small, outputs(struct{}{}), nil},
		"markdown outputs": {small, small.SetOutputs(1, 0, nil), nil},
		"type":             {small, small.SetSource(0, "", "heading"), nil},
		"new type":         {small, insert(small, 0, NewCell{}), nil},
		"tag":              {small, insert(small, 0, NewCell{Type: Code, Tags: []string{"a,b"}}), nil},
		"empty tag":        {small, insert(small, 0, NewCell{Type: Code, Tags: []string{""}}), nil},
		"same tag":         {small, insert(small, 0, NewCell{Type: Code, Tags: []string{"a", "a"}}), nil},
		"insert at":        {small, insert(small, 3, NewCell{Type: Code}), ErrNoIndex},
		"insert before":    {small, insert(small, -2, NewCell{Type: Code}), ErrNoIndex},
		"set":              {small, small.SetSource(2, "", ""), ErrNoIndex},
		"outputs of":       {small, small.SetOutputs(-1, 0, nil), ErrNoIndex},
		"delete":           {small, small.Delete(2), ErrNoIndex},
		"move from":        {small, small.Move(2, 0), ErrNoIndex},
		"move to":          {small, small.Move(0, -1), ErrNoIndex},
	} {
		if test.err == nil || test.want != nil && !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v", name, test.err)
		}
	}
	if full.Len() != MaxCells || string(small.Bytes()) != `{"nbformat":4,"cells":[`+cell+`, {"cell_type": "markdown"}]}` {
		t.Errorf("%d cells, %s", full.Len(), small.Bytes())
	}
	copied := *small
	if err := copied.Delete(0); err != nil || small.Len() != 2 || copied.Len() != 1 {
		t.Errorf("%v: an edit of a copy left %d cells", err, small.Len())
	}
}

func TestTheLastCellMayBeDeletedAndAnotherInserted(t *testing.T) {
	d := parsed(t, "{\n  \"cells\": [\n    {}\n  ],\n  \"nbformat\": 4\n}")
	if err := d.Delete(0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Insert(0, NewCell{Type: Raw}); err != nil {
		t.Fatal(err)
	}
	want := "{\n  \"cells\": [\n    {\n      \"cell_type\": \"raw\",\n      \"metadata\": {},\n      \"source\": []\n    }\n  ],\n  \"nbformat\": 4\n}"
	if got := string(d.Bytes()); got != want {
		t.Errorf("%s", got)
	}
}

func TestACellWithoutKeysIsEdited(t *testing.T) {
	d := parsed(t, `{"cells": [{}], "nbformat": 4}`)
	if err := d.SetSource(0, "a\nb", Code); err != nil {
		t.Fatal(err)
	}
	want := `{"cells": [{"cell_type": "code", "execution_count": null, "outputs": [], "source": ["a\n", "b"]}], "nbformat": 4}`
	if got := string(d.Bytes()); got != want {
		t.Errorf("%s", got)
	}
}

// Numbers are written as Python writes them.
func TestNumbers(t *testing.T) {
	for want, f := range map[string]float64{
		"0.0": 0, "1.0": 1, "-1.5": -1.5, "0.1": 0.1, "0.0001": 1e-4, "1e-05": 1e-5, "1000000000000000.0": 1e15, "1e+16": 1e16, "1.5e+300": 1.5e300,
		"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1),
	} {
		if got, err := jupyterStyle.write(nil, f, ""); err != nil || string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
