package notebook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"testing/quick"

	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// odd is a file as no program writes it: mixed white space and line ends, a byte order mark,
// needless escapes, numbers that JSON does not have.
const odd = "\ufeff{ \"cells\":[\r\n" +
	"\t{\"cell_type\" : \"code\",\n  \"id\":\"\\u0061\",\"source\": [ \"one\\u002f\\n\",\r\n\"two two\\n\" ,\"\\ud800\\n\",\r\n\"end\"],\n\n\"x\":-Infinity,\"outputs\":[{\"text\": NaN}], \"metadata\":{\"collapsed\":1E5}}  ,\n" +
	"{\"source\":\"a\\/b\", \"cell_type\":\"markdown\", \"metadata\":{}, \"attachments\": {}, \"id\": \"b\"}\n" +
	"\r\n], \"nbformat_minor\":5, \"nbformat\":4.0,  \"metadata\" : {} }\r\n\r\n"

func TestAnEditTouchesOnlyItsLines(t *testing.T) {
	must := func(err error) {
		t.Helper()
		must(t, err)
	}
	for name, test := range map[string]struct {
		edit     func(d *Document)
		old, new string
	}{
		"nothing":     {func(d *Document) { must(d.SetSource(0, d.Cell(0).Source, Code)); must(d.Move(1, 1)); d.RepairIDs() }, "", ""},
		"last line":   {func(d *Document) { must(d.SetSource(0, "one/\ntwo two\n\ufffd\nfin", "")) }, `"end"]`, `"fin"]`},
		"middle line": {func(d *Document) { must(d.SetSource(0, "one/\n2\n\ufffd\nend", "")) }, `"two two\n" ,"`, "\"2\\n\",\r\n\""},
		"more lines":  {func(d *Document) { must(d.SetSource(0, "one/\ntwo two\n\ufffd\nend\n2", "")) }, `"end"]`, "\"end\\n\",\r\n\"2\"]"},
		"no lines":    {func(d *Document) { must(d.SetSource(0, "", "")) }, "[ \"one\\u002f\\n\",\r\n\"two two\\n\" ,\"\\ud800\\n\",\r\n\"end\"]", "[]"},
		"a string":    {func(d *Document) { must(d.SetSource(1, "a\nb", "")) }, `"a\/b"`, `"a\nb"`},
		"to code":     {func(d *Document) { must(d.SetSource(1, "a/b", Code)) }, `"markdown", "metadata":{}, "attachments": {}, `, `"code", "metadata":{}, `},
		"to markdown": {func(d *Document) { must(d.SetSource(0, d.Cell(0).Source, Markdown)) }, `"outputs":[{"text": NaN}], `, ``},
		"outputs":     {func(d *Document) { must(d.SetOutputs([]NewOutputs{{}}, d.most)) }, `[{"text": NaN}], "metadata":{"collapsed":1E5}}`, "[], \"metadata\":{\"collapsed\":1E5},\n  \"execution_count\" : null}"},
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
			want = strings.Replace(want, `"id": "b"`, `"id": "b", "execution_count":null, "outputs":[]`, 1)
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
	outputs := func(value any) error {
		return small.SetOutputs([]NewOutputs{{ExecutionCount: 1, Outputs: []map[string]any{{"x": value}}}}, small.most)
	}
	long := strings.Repeat("x", 1000)
	for name, test := range map[string]struct {
		d    *Document
		err  error
		want error // nil for any
	}{
		"file":             {small, small.SetSource(0, long, ""), bounded.ErrTooLong},
		"upgrade":          {small, func() error { _, err := small.Upgrade(); return err }(), bounded.ErrTooLong},
		"nested output":    {small, outputs(nested), nil},
		"markdown outputs": {small, small.SetOutputs([]NewOutputs{{Index: 1}}, small.most), nil},
		"type":             {small, small.SetSource(0, "", "heading"), nil},
		"tag":              {small, insert(small, 0, NewCell{Type: Code, Tags: []string{"a,b"}}), nil},
		"insert at":        {small, insert(small, 3, NewCell{Type: Code}), ErrNoIndex},
		"outputs of":       {small, small.SetOutputs([]NewOutputs{{Index: -1}}, small.most), ErrNoIndex},
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

// named returns a notebook with one cell for each id; "" for none.
func named(t *testing.T, minor int, key string, ids ...string) *Document {
	t.Helper()
	var cells []string
	for i, id := range ids {
		member := ""
		switch {
		case id != "" && key == "id":
			member = fmt.Sprintf(`"id": %q, `, id)
		case id != "":
			member = fmt.Sprintf(`"metadata": {"id": %q}, `, id)
		}
		cells = append(cells, fmt.Sprintf(`{"cell_type": "code", %s"source": "x = %d"}`, member, i))
	}
	return parsed(t, fmt.Sprintf(`{"nbformat": 4, "nbformat_minor": %d, "cells": [%s]}`, minor, strings.Join(cells, ", ")))
}

func handles(d *Document) (all []string) {
	for i := range d.Len() {
		all = append(all, d.Cell(i).Handle)
	}
	return all
}

func TestHandles(t *testing.T) {
	long := strings.Repeat("a", 65)
	for name, test := range map[string]struct {
		d    *Document
		want string
	}{
		"ids":            {named(t, 5, "id", "a", "b-_9Z"), "a b-_9Z"},
		"bad ids":        {named(t, 5, "id", "a", "", "a", "a b", long), "a #1-8ff436de #2-1431b986 #3-b8478134 #4-b31bbd46"},
		"ids before 4.5": {named(t, 4, "id", "a"), "#0-bc3b5864"},
		"Colab":          {named(t, 0, "metadata", "AbC-_1234567", "AbC-_1234567", ""), "AbC-_1234567 #1-8ff436de #2-1431b986"},
		"a later cell's": {parsed(t, `{"nbformat": 4, "nbformat_minor": 5, "cells": [{"metadata": {"id": "a"}, "source": "x = 0"}, {"id": "a"}]}`), "#0-bc3b5864 a"},
	} {
		got := handles(test.d)
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q", name, got)
		}
		for i, handle := range got {
			if found, err := test.d.Find(handle); found != i || err != nil {
				t.Errorf("%s: %s is found at %d, %v", name, handle, found, err)
			}
		}
	}
}

func TestACellThatChangedIsNotFoundByItsOldHandle(t *testing.T) {
	d := named(t, 5, "id", "first-cell", "second-cell", "third", "")
	if _, err := d.Find("frist-cell"); !errors.Is(err, ErrNoCell) || !strings.Contains(err.Error(), `mean "first-cell"`) {
		t.Error(err)
	}
	handle := d.Cell(3).Handle
	must(t, d.SetSource(3, "another source", ""))
	if _, err := d.Find(handle); !errors.Is(err, ErrCellChanged) || !strings.Contains(err.Error(), d.Cell(3).Handle) {
		t.Error(err)
	}
}

func TestIDsAreRepaired(t *testing.T) {
	d := named(t, 5, "id", "a", "", "a", "a b", "c")
	notes := d.RepairIDs()
	ids := handles(d)
	want := []string{fmt.Sprintf("Cells without a valid id of their own have one now; counted from 0: cell 1 has %s, cell 2 has %s, cell 3 has %s.", ids[1], ids[2], ids[3])}
	if !reflect.DeepEqual(notes, want) || ids[0] != "a" || ids[4] != "c" {
		t.Errorf("%q, %q", notes, ids)
	}
	text := fmt.Sprintf(`"id": %q, "source": "x = 1"}, {"cell_type": "code", "id": %q, "source": "x = 2"}, {"cell_type": "code", "id": %q,`, ids[1], ids[2], ids[3])
	if !strings.Contains(string(d.Bytes()), text) {
		t.Errorf("%s", d.Bytes())
	}
	if notes := d.RepairIDs(); notes != nil {
		t.Errorf("repaired again: %q", notes)
	}
	if notes := named(t, 4, "id", "", "a").RepairIDs(); notes != nil {
		t.Errorf("before 4.5: %q", notes)
	}
}

// The oracle is nbformat.validate.
func TestWhatMakesANotebookInvalidIsCounted(t *testing.T) {
	const meta, code = `"metadata": {}, `, `{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": null, "source": ""`
	for file, want := range map[string]int{
		`{"nbformat": 4, "nbformat_minor": 5, ` + meta + `"cells": [` + code + `, "id": "a"}]}`:                                              0,
		`{"nbformat": 4, "nbformat_minor": 4, ` + meta + `"cells": [` + code + `}]}`:                                                         0,
		`{"nbformat": 4, "nbformat_minor": 4, ` + meta + `"cells": [` + code + `, "id": "a"}]}`:                                              1,
		`{"nbformat": 4, ` + meta + `"cells": [` + code + `, "id": "a"}]}`:                                                                   2,
		`{"nbformat": 4, "nbformat_minor": 5, "cells": [` + code + `, "id": "a"}, ` + code + `, "id": "a"}, {"source": "", "outputs": []}]}`: 3,
	} {
		if faults, _ := parsed(t, file).faults(); len(faults) != want {
			t.Errorf("%s: %q, want %d", file, faults, want)
		}
	}
}

func TestUpgrade(t *testing.T) {
	d := named(t, 0, "metadata", "AbC-_1234567", "", "AbC-_1234567")
	notes, err := d.Upgrade()
	ids := handles(d)
	if err != nil || len(notes) != 2 || notes[0] != "The notebook was nbformat 4.0 and is nbformat 4.5 now, in which each cell has an id." || d.Minor() != 5 || ids[0] != "AbC-_1234567" {
		t.Errorf("%q, %q", notes, ids)
	}
	want := fmt.Sprintf(`{"nbformat": 4, "nbformat_minor": 5, "cells": [{"cell_type": "code", "id": "AbC-_1234567", "metadata": {"id": "AbC-_1234567"}, "source": "x = 0"}, `+
		`{"cell_type": "code", "id": %q, "source": "x = 1"}, {"cell_type": "code", "id": %q, "metadata": {"id": "AbC-_1234567"}, "source": "x = 2"}]}`, ids[1], ids[2])
	if got := string(d.Bytes()); got != want {
		t.Error(got)
	}
	if notes, err := d.Upgrade(); notes != nil || err != nil {
		t.Errorf("upgraded again: %q, %v", notes, err)
	}
}

// Whatever a cell has: what is shown of it, written back, is refused or is the cell.
func TestASourceThatIsWrittenBackIsRefusedOrTheSame(t *testing.T) {
	pieces := []string{"a", "\n", "\r\n", "\r", "\t", " ", "\f", "\x1b", "[31m", "\u2028", "\u200d", "👁", "\ufe0f", "\ue000", "ü", "\u0085", "]0;"}
	back := func(choices []uint8) bool {
		var b strings.Builder
		for _, c := range choices {
			b.WriteString(pieces[int(c)%len(pieces)])
		}
		got := WithLineEnds(b.String(), plain.Text(b.String()))
		return Loss(b.String(), got) != "" || got == b.String()
	}
	if err := quick.Check(back, &quick.Config{MaxCount: 5_000}); err != nil {
		t.Error(err)
	}
}

// An edit keeps halves of surrogate pairs in the lines that it does not change, and is refused where
// U+FFFD would take their place.
func TestAnEditKeepsHalvesOfSurrogatePairs(t *testing.T) {
	for name, test := range map[string]struct {
		source string // JSON
		edit   string // from the text that is shown
		want   string // JSON; empty if it is refused
	}{
		"around it":     {`"a\ud800b"`, "x\ufffdy", ""},
		"instead of it": {`"a\ud800b"`, "acb", `"acb"`},
		"its line":      {`["a\n", "b\ud800c\n", "d"]`, "a\nb\ufffdcx\nd", ""},
		"other lines":   {`["a\n", "b\ud800c\n", "d"]`, "a\nb\ufffdc\ne\nf", `["a\n", "b\ud800c\n", "e\n", "f"]`},
	} {
		d, err := Parse([]byte(`{"cells":[{"cell_type":"raw","metadata":{},"source":` + test.source + `}],"metadata":{},"nbformat":4,"nbformat_minor":4}`))
		must(t, err)
		if !d.Cell(0).Halves {
			t.Errorf("%s: no halves are seen", name)
		}
		before := string(d.Bytes())
		err = d.SetSource(0, test.edit, "")
		if test.want == "" {
			if !errors.Is(err, ErrHalves) || string(d.Bytes()) != before {
				t.Errorf("%s: %v, %s", name, err, d.Bytes())
			}
			continue
		}
		if got := string(d.part(d.cells[0].source)); err != nil || strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(test.want, " ", "") {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
	}
}

// nbformat itself must accept what Text writes, without a warning, and write the same bytes.
func TestNbformatReadsWhatIsWritten(t *testing.T) {
	tier.Long(t)
	hostile := "a\x00\x1b[31m\xff<b>&amp;\u0085\u2029\r\n\x0b\x1c" + strings.Repeat("`", 3)
	cell := new(output.Collector).Begin("")
	cell.Add(t.Context(), []contract.Event{
		{Type: contract.EventStream, Name: contract.Stdout, Text: hostile}, {Type: contract.EventError, EName: hostile, EValue: hostile, Traceback: []string{hostile}},
		{Type: contract.EventExecuteResult, ExecutionCount: 7, Metadata: json.RawMessage(`{"isolated": true}`), Data: map[string]json.RawMessage{
			"image/png": json.RawMessage(`"Ynl0ZXM="`), "text/html": json.RawMessage(`"<p>\n</p>"`),
			"application/vnd.x+json": json.RawMessage(`{"z": 1, "a": null}`), "image/svg+xml": json.RawMessage(`"<svg/>\n"`),
		}},
		{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{
			"text/plain": json.RawMessage(`["a\n", "b"]`), "weird\x00type": json.RawMessage(`"x"`), "application/json": json.RawMessage("3"),
		}},
	}, nil)
	n := Notebook{Cells: []RunCell{{Seed: "same", Source: "%pip install x\nprint('ü')", Outputs: cell.Outputs(), ExecutionCount: 3}, {Seed: "same"}, {Seed: hostile, Source: hostile}}}
	for _, n := range []Notebook{n, {}} {
		text, err := n.Text()
		must(t, err)
		cmd := exec.Command(stacks.Notebook(t), "-W", "error", "-c", `
import sys, nbformat
text = sys.stdin.buffer.read().decode()
notebook = nbformat.reads(text, as_version=4)
nbformat.validate(notebook)
assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5), notebook
again = nbformat.writes(notebook) + "\n"
assert again == text, again + "\n---\n" + text
`)
		cmd.Stdin = bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// The states of widgets that outputs show are in the metadata, with those to which they lead; all else
// in the file keeps its bytes.
func TestStatesOfWidgetsThatNobodyShowsGo(t *testing.T) {
	const before = `{
 "cells": [{"cell_type": "code", "execution_count": 1, "metadata": {}, "source": [],
   "outputs": [{"data": {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}}, "metadata": {}, "output_type": "display_data"}]}],
 "metadata": {"z":  1, "widgets": {"application/vnd.jupyter.widget-state+json": {"state": {"old": {"state": {}}, "kept": {"state": {"value": 1.50}}}}}},
 "nbformat": 4, "nbformat_minor": 4
}`
	d, err := Parse([]byte(before))
	must(t, err)
	shown := output.JSON(`{"model_name":"HBoxModel","state":{"children":["IPY_MODEL_kept"]}}`)
	must(t, d.SetWidgets(map[string]output.JSON{"a": shown, "b": shown}))
	if got, _, _ := d.widgets(); len(got) != 2 || string(got["a"]) != string(shown) || string(got["kept"]) != `{"state":{"value":1.50}}` {
		t.Errorf("the notebook has the states %s", got)
	}
	if d.Strip(); !strings.HasSuffix(string(d.Bytes()), "\"metadata\": {\"z\":  1},\n \"nbformat\": 4, \"nbformat_minor\": 4\n}") {
		t.Errorf("without outputs, the notebook is %s", d.Bytes())
	}
}

// Colab writes the states without an object around them; other entries stay.
func TestStatesAsColabWritesThemStay(t *testing.T) {
	d, err := Parse([]byte(`{"cells": [{"cell_type": "code", "execution_count": 1, "metadata": {}, "source": [], "outputs":
  [{"data": {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}}, "metadata": {}, "output_type": "display_data"}]}],
 "metadata": {"widgets": {"other": {"x": 1}, "application/vnd.jupyter.widget-state+json": {"a": {"model_name": "LabelModel", "state": {"value": "seen"}}}}}, "nbformat": 4, "nbformat_minor": 4}`))
	must(t, err)
	must(t, d.SetWidgets(map[string]output.JSON{"b": output.JSON("{}")}))
	text, ok := d.WidgetText([]byte(`{"model_id": "a"}`))
	if _, others, _ := d.widgets(); text != "seen" || !ok || others["other"] == nil {
		t.Errorf("the widget shows %q, and the metadata has also %v", text, others)
	}
}

// Some programs write strings that are no lines; an edit of another line leaves them as they are.
func TestStringsThatAreNoLinesStayAsTheyAre(t *testing.T) {
	const list = `["a\n", "if x:", "   y\n", "", "end"]`
	d, err := Parse([]byte(`{"cells": [{"cell_type": "markdown", "metadata": {}, "source": ` + list + `}], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetSource(0, "b\nif x:   y\nend", ""); err != nil || !strings.Contains(string(d.Bytes()), `["b\n", "if x:", "   y\n", "", "`) {
		t.Errorf("the file is %s, %v", d.Bytes(), err)
	}
	if err := d.SetSource(0, "a\nif x:   y\nend", ""); err != nil || !strings.Contains(string(d.Bytes()), list) {
		t.Errorf("undone, it is %s, %v", d.Bytes(), err)
	}
}
