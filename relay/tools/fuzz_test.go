package tools

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
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
