package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/op"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/within"
)

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func listen(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + modernMeta + `}}`
}

func TestIDsAreRepeatedExactlyOrRefused(t *testing.T) {
	l := serveLines(t, withoutRuntime(), maxHeld)
	digits, letters := strings.Repeat("9", maxID), `"`+strings.Repeat("é", (maxID-2)/2)+`"`
	for _, method := range []string{`"ping"`, `"tools/call","params":{"name":"list_executions"}`, `"no such method"`} {
		for _, id := range []string{`0`, `-7.5`, `18446744073709551616`, `"\u0061\n"`, digits, letters} {
			l.send(`{"jsonrpc":"2.0","id":%s,"method":%s}`, id, method)
			line, err := l.out.ReadBytes('\n')
			if err != nil || !bytes.HasPrefix(line, []byte(`{"jsonrpc":"2.0","id":`)) {
				t.Fatalf("%.100s: %q %v", id, line, err)
			}
			got := decode[struct{ ID json.RawMessage }](t, line).ID
			if id[0] != '"' && string(got) != id || id[0] == '"' && decode[string](t, got) != decode[string](t, json.RawMessage(id)) {
				t.Errorf("id %.100s came back as %.100s", id, got)
			}
		}
		for _, id := range []string{`true`, `{"a":1}`, `1` + digits, `"x` + letters[1:], "\"\xff\""} {
			l.send(`{"jsonrpc":"2.0","id":%s,"method":%s}`, id, method)
			if m := l.next(); m.ID != nil || m.Error == nil || m.Error.Code != mcp.INVALID_REQUEST || !strings.Contains(m.Error.Message, "256 bytes") {
				t.Errorf("id %.100s: %+v", id, m)
			}
		}
	}
	l.quiet()
}

func TestAMessageThatIsTooLongIsSkipped(t *testing.T) {
	l := serveLines(t, withoutRuntime(), maxHeld)
	long := strings.Repeat("x", maxLine)
	l.send(`{"jsonrpc":"2.0","id":1,"method":"ping","x":"%s"}`, long)
	if m := l.next(); m.ID != nil || m.Error == nil || m.Error.Message != "the message is longer than 32 MiB" {
		t.Errorf("%+v", m)
	}
	l.quiet()
}

// The host sends and does not read.
func TestNothingIsReadBeyondWhatTheRelayMayHold(t *testing.T) {
	const room = 10
	l := serveLines(t, withoutRuntime(), room*requestCost)
	ping := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"ping","x":"%s"}`+"\n", strings.Repeat("x", requestCost/2))
	cost := int64(len(ping)) + requestCost
	var sent atomic.Int64
	go func() {
		for range 10 * room {
			if _, err := io.WriteString(l.in, ping); err != nil {
				t.Error(err)
			}
			sent.Add(1)
		}
	}()
	within.Until(t, "the relay holds all it may", func() bool {
		free := l.stdio.held.TryAcquire(cost)
		if free {
			l.stdio.held.Release(cost)
		}
		return !free
	})
	// Each ping counts as one and a half; the reader's buffer takes a few more.
	if n := int(sent.Load()); n > room*2/3+1+(64<<10)/len(ping)+1 {
		t.Errorf("took %d messages", n)
	}
	for range 10 * room {
		l.next()
	}
	l.quiet()
}

// Clients that try both eras start a relay only to ask which it knows.
func TestAStartAndTheListsCallNothing(t *testing.T) {
	l := serveFake(t, func(context.Context, op.Request, func(op.Result)) { t.Error("a call") })
	for _, request := range []string{`"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}`, `"tools/list"`, `"server/discover","params":{` + modernMeta + `}`} {
		l.send(`{"jsonrpc":"2.0","id":1,"method":%s}`, request)
		if m := l.next(); m.Error != nil {
			t.Errorf("%s: %+v", request, m.Error)
		}
	}
	l.send("%s", listen("7"))
	const about = `{"_meta":{"io.modelcontextprotocol/subscriptionId":7`
	if m := l.next(); m.Method != "notifications/subscriptions/acknowledged" || string(m.Params) != about+`},"notifications":{}}` {
		t.Errorf("%s %s", m.Method, m.Params)
	}
	if m := l.next(); !strings.Contains(string(m.Result), `"io.modelcontextprotocol/subscriptionId":7},"resultType":"complete"`) {
		t.Errorf("%s", m.Result)
	}
}

var update = flag.Bool("update", false, "write the golden files")

func TestToolSchemasAreAsInTheGoldenFiles(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range op.New(op.Config{Toolsets: toolsets.All}).Definitions() {
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

// Every session pays for it. A new tool of Core pays by shorter texts of others.
func TestTheListOfToolsIsShort(t *testing.T) {
	for most, served := range map[int][]toolsets.Toolset{14_000: nil, 26_000: toolsets.All} {
		l := serveLines(t, New(op.New(op.Config{Toolsets: served}), "", "1.2"), maxHeld)
		l.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		if n := utf8.RuneCount(l.next().Result); n > most {
			t.Errorf("tools/list with the sets %v beside core has %d characters, and at most %d are allowed: shorten other texts", served, n, most)
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
		q.reply(resultOf(op.Result{Text: "x", Structured: []byte("{}")}))
		var back message
		if err := json.Unmarshal([]byte(text.String()), &back); err != nil || strings.Count(text.String(), "\n") != 1 || !utf8.ValidString(text.String()) {
			t.Fatalf("%q is answered by %q: %v", line, text.String(), err)
		}
		if idKey(validID(back.ID)) != idKey(q.id) {
			t.Errorf("the answer to %s is for %s", q.id, back.ID)
		}
	})
}
