package mcp

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/relay/tools"
	"colabrelay/relay/toolsets"
)

var update = flag.Bool("update", false, "write the golden files")

func TestToolSchemasAreAsInTheGoldenFiles(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range tools.New(tools.Config{Toolsets: toolsets.All}).Definitions() {
		b, err := json.MarshalIndent(listed(d), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, '\n')
		path := filepath.Join("testdata", d.Name+".json")
		seen[filepath.Base(path)] = true
		if *update {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s is not as in %s (go test ./relay/mcp -update writes it): %v", d.Name, path, err)
		}
	}
	files, _ := filepath.Glob("testdata/*.json")
	for _, f := range files {
		if !seen[filepath.Base(f)] {
			t.Errorf("%s belongs to no tool", f)
		}
	}
}

// Every session pays for it.
func TestTheListOfToolsIsShort(t *testing.T) {
	for most, served := range map[int][]toolsets.Toolset{14_000: nil, 26_000: toolsets.All} {
		l := serveLines(t, New(tools.New(tools.Config{Toolsets: served}), "", "1.2"), maxHeld)
		l.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		if n := utf8.RuneCount(l.next().Result); n > most {
			t.Errorf("the list of %d sets has %d characters", len(served), n)
		}
	}
}

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
	s := New(fake(nil), "", "")
	f.Fuzz(func(t *testing.T, line []byte) {
		m, refusal := parse(line)
		var text strings.Builder
		q := &request{message: m, server: s, id: validID(m.ID), out: &lineWriter{w: &text}}
		if q.id == nil || refusal != nil || s.check(q) != nil || !q.isCall() {
			return
		}
		q.reply(resultOf(tools.Result{Text: "x", Structured: []byte("{}")}))
		var back message
		if err := json.Unmarshal([]byte(text.String()), &back); err != nil || strings.Count(text.String(), "\n") != 1 || !utf8.ValidString(text.String()) {
			t.Fatalf("%q is answered by %q: %v", line, text.String(), err)
		}
		if idKey(validID(back.ID)) != idKey(q.id) {
			t.Errorf("the answer to %s is for %s", q.id, back.ID)
		}
	})
}
