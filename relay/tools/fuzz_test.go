package tools

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
)

// FuzzMessage reads any line of a host. Its answer is one line of JSON for the same id.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1},"_meta":{"progressToken":"p"}}}`,
		`{"jsonrpc":"2.0","id":"\u0061\u2028","method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		`{"jsonrpc":"2.0","id":1.50e3,"id":{"a":1},"method":"tools/call","params":[]}`,
		`{"jsonrpc":"2.0","ID":-0,"Method":"tools/call","params":{"name":"t","name":"u"},"result":null}`,
		`[{"jsonrpc":"2.0"}]`, "null", "\xff", `{"id":"` + strings.Repeat("x", 300) + `"}`,
	} {
		f.Add([]byte(seed))
	}
	known := map[string]tool{"t": {}}
	f.Fuzz(func(t *testing.T, line []byte) {
		m := parseEnvelope(line)
		id, c := validID(m.ID), parseCall(m, known)
		if id == nil || c == nil {
			return
		}
		if c.Name != "t" || len(id) > maxID {
			t.Fatalf("%q was taken for a call of %q", line, c.Name)
		}
		text := c.encode(id, answer{content: []mcp.Content{}, structured: []byte("{}")}, modernFields("v"))
		var back envelope
		if err := json.Unmarshal(text, &back); err != nil || bytes.Count(text, []byte("\n")) != 1 || !utf8.Valid(text) {
			t.Fatalf("%q is answered by %q: %v", line, text, err)
		}
		if idKey(validID(back.ID)) != idKey(id) {
			t.Errorf("the answer to %s is for %s", id, back.ID)
		}
	})
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
		got := readOutputs(t.Context(), notebook.New(), list, previewOutputs)
		var b words
		for i := range got.outputs {
			o := &got.outputs[i]
			o.write(&b, "cell 1")
			if !plainText(o.Text) || len(o.MIMETypes) > 20 {
				t.Errorf("%s shows %+v", list, *o)
			}
		}
		if n := utf8.RuneCountInString(b.text(100_000)); len(got.outputs) > previewOutputs.outputs || n > 60_000 {
			t.Errorf("%d outputs of %d characters are shown", len(got.outputs), n)
		}
		tab, col := tabOutputs{}, render.New(render.Options{New: true})
		tab.addTo(col, list)
		if v := col.View(t.Context(), tab.fetch); len(v.Outputs) > 100 {
			t.Errorf("%d outputs are shown", len(v.Outputs))
		}
	})
}

func plainText(s string) bool { return plain.Text(s) == s }
