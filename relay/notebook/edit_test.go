package notebook

import (
	"errors"
	"strings"
	"testing"

	"colabrelay/shared/bounded"
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
		"more lines":  {func(d *Document) { must(d.SetSource(0, "one/\ntwo two\n\ufffd\nend\n2", "")) }, `"end"]`, "\"end\\n\",\r\n\"2\"]"},
		"no lines":    {func(d *Document) { must(d.SetSource(0, "", "")) }, "[ \"one\\u002f\\n\",\r\n\"two\",  \" two\\n\" ,\"\\ud800\\n\",\"end\"]", "[]"},
		"a string":    {func(d *Document) { must(d.SetSource(1, "a\nb", "")) }, `"a\/b"`, `"a\nb"`},
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
	cell := `{"cell_type":"code","source":""}`
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
		"file":             {small, small.SetSource(0, long, ""), bounded.ErrTooLong},
		"upgrade":          {small, func() error { _, err := small.Upgrade(); return err }(), bounded.ErrTooLong},
		"nested output":    {small, outputs(nested), nil},
		"markdown outputs": {small, small.SetOutputs(1, 0, nil), nil},
		"type":             {small, small.SetSource(0, "", "heading"), nil},
		"tag":              {small, insert(small, 0, NewCell{Type: Code, Tags: []string{"a,b"}}), nil},
		"insert at":        {small, insert(small, 3, NewCell{Type: Code}), ErrNoIndex},
		"outputs of":       {small, small.SetOutputs(-1, 0, nil), ErrNoIndex},
	} {
		if test.err == nil || test.want != nil && !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v", name, test.err)
		}
	}
	if string(small.Bytes()) != `{"nbformat":4,"cells":[`+cell+`, {"cell_type": "markdown"}]}` {
		t.Errorf("%s", small.Bytes())
	}
	copied := *small
	if err := copied.Delete(0); err != nil || small.Len() != 2 || copied.Len() != 1 {
		t.Errorf("%v: an edit of a copy left %d cells", err, small.Len())
	}
}
