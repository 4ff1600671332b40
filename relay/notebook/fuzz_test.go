package notebook

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"colabrelay/relay/output"
	"colabrelay/shared/contract"
)

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
		var b bytes.Buffer
		if err := (Notebook{Cells: []RunCell{{Seed: text, Source: text, Outputs: cell.Outputs()}}}).Write(&b); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(b.Bytes()) {
			t.Fatalf("no JSON: %s", b.Bytes())
		}
		d, err := Parse(b.Bytes())
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
