package hostconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var relay = Command{Path: "/opt/relay", Args: []string{"serve"}}

func host(t testing.TB, name string) Host {
	t.Helper()
	h, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// user is a place of the test's own.
func user(t *testing.T) Place {
	t.Helper()
	dir := t.TempDir()
	return Place{Home: dir, Config: filepath.Join(dir, "config"), Getenv: func(string) string { return "" }}
}

func put(t *testing.T, h Host, p Place, text string) string {
	t.Helper()
	path := h.file(p)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

// The rest of a file stays as it is, to the byte.
func TestEdits(t *testing.T) {
	for name, c := range map[string]struct{ host, before, after string }{
		"nothing there": {"cursor", "", "{\n  \"mcpServers\": {\n    \"colab-relay\": {\n      \"command\": \"/opt/relay\",\n      \"args\": [\n        \"serve\"\n      ]\n    }\n  }\n}\n"},
		"among others, tabs, no newline at the end": {
			"claude-desktop",
			"{\n\t\"theme\" : \"dark\",\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\", \"env\": {\"N\": 12345678901234567890}}\n\t}}",
			"{\n\t\"theme\" : \"dark\",\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\", \"env\": {\"N\": 12345678901234567890}},\n\t\t\"colab-relay\": {\n\t\t\t\"command\": \"/opt/relay\",\n\t\t\t\"args\": [\n\t\t\t\t\"serve\"\n\t\t\t]\n\t\t}\n\t}}",
		},
		"an empty list, Windows lines and mark": {
			"cursor", "\xef\xbb\xbf{\r\n    \"mcpServers\": {}\r\n}\r\n",
			"\xef\xbb\xbf{\r\n    \"mcpServers\": {\r\n        \"colab-relay\": {\r\n            \"command\": \"/opt/relay\",\r\n            \"args\": [\r\n                \"serve\"\r\n            ]\r\n        }\r\n    }\r\n}\r\n",
		},
		"one line": {
			"claude-code", `{"projects":{"/x":{"mcpServers":{"colab-relay":1}}},"mcpServers":{"a":{}}}`,
			`{"projects":{"/x":{"mcpServers":{"colab-relay":1}}},"mcpServers":{"a":{}, "colab-relay": {` + "\n  \"type\": \"stdio\",\n  \"command\": \"/opt/relay\",\n  \"args\": [\n    \"serve\"\n  ]\n}}}",
		},
		"a relay moved: env and args stay": {
			"vscode", `{"servers": {"colab-relay": {"type": "stdio", "command": "/old/relay-linux-amd64", "args": ["--hold", "50s"], "env": {"A": "é&<"}}}}`,
			`{"servers": {"colab-relay": {"type": "stdio", "command": "/opt/relay", "args": ["--hold", "50s"], "env": {"A": "é&<"}}}}`,
		},
		"a bridge replaced": {
			"cursor", "{\n  \"mcpServers\": {\n    \"colab-relay\": {\n      \"command\": \"python\",\n      \"args\": [\"bridge.py\"],\n      \"cwd\": \"/x\"\n    }\n  }\n}",
			"{\n  \"mcpServers\": {\n    \"colab-relay\": {\n      \"command\": \"/opt/relay\",\n      \"args\": [\n        \"serve\"\n      ],\n      \"cwd\": \"/x\"\n    }\n  }\n}",
		},
		"the last of two counts": {
			"cursor", `{"mcpServers":{"colab-relay":{"command":"/a/relay","args":[]},"colab-relay":{"command":"/b/relay","args":[]}}}`,
			`{"mcpServers":{"colab-relay":{"command":"/a/relay","args":[]},"colab-relay":{"command":"/opt/relay","args":[]}}}`,
		},
		"TOML, nothing there": {"codex", "", "[mcp_servers.colab-relay]\ncommand = \"/opt/relay\"\nargs = [\"serve\"]\n"},
		"TOML, others": {
			"codex", "model = \"x\" # y\n\n[mcp_servers.a]\ncommand = \"a\"",
			"model = \"x\" # y\n\n[mcp_servers.a]\ncommand = \"a\"\n\n[mcp_servers.colab-relay]\ncommand = \"/opt/relay\"\nargs = [\"serve\"]\n",
		},
		"TOML, lists of several lines and brackets in texts": {
			"codex", "a.\"b c\" = [ # [\n  \"]\", # \"\n\n  '{', {x = \"\\\"[\"},\n]\n# \"\"\"\n[[t]]\ne = \"\"\n",
			"a.\"b c\" = [ # [\n  \"]\", # \"\n\n  '{', {x = \"\\\"[\"},\n]\n# \"\"\"\n[[t]]\ne = \"\"\n\n[mcp_servers.colab-relay]\ncommand = \"/opt/relay\"\nargs = [\"serve\"]\n",
		},
		"TOML, a relay moved": {
			"codex", "[mcp_servers.\"colab-relay\"] # ours\r\nargs = [\"--hold\", \"50s\"]\r\ncommand = 'C:\\relay.exe'\r\ntool_timeout_sec = 90\r\n[mcp_servers.colab-relay.env]\r\ncommand = \"no\"\r\n",
			"[mcp_servers.\"colab-relay\"] # ours\r\nargs = [\"--hold\", \"50s\"]\r\ncommand = \"/opt/relay\"\r\ntool_timeout_sec = 90\r\n[mcp_servers.colab-relay.env]\r\ncommand = \"no\"\r\n",
		},
		"TOML, without args": {
			"codex", "[mcp_servers.colab-relay]\ncommand = \"uvx\"\n", "[mcp_servers.colab-relay]\nargs = [\"serve\"]\ncommand = \"/opt/relay\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := host(t, c.host)
			got, err := h.edit([]byte(c.before), relay)
			if err != nil || string(got) != c.after {
				t.Fatalf("%v\n%s\nwant\n%s", err, got, c.after)
			}
			again, err := h.edit(got, relay)
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("a second time: %v\n%s", err, again)
			}
			if program, ok := h.program(got); !ok || program != relay.Path {
				t.Errorf("read back as %q", program)
			}
		})
	}
}

func TestWhatIsNotUnderstoodStays(t *testing.T) {
	for text, name := range map[string]string{
		"// comment\n{}":                        "vscode",
		`{"mcpServers": {},}`:                   "cursor",
		`{"mcpServers": []}`:                    "cursor",
		`{"mcpServers": null}`:                  "cursor",
		`{"mcpServers": {"colab-relay": "x"}}`:  "cursor",
		`[]`:                                    "cursor",
		"{":                                     "cursor",
		"mcp_servers = {a = {command = \"x\"}}": "codex",
		"a = \"\"\"\nopen":                      "codex",
		"a = \"\"\"\n[mcp_servers.colab-relay]\ncommand=\"x\"\n\"\"\"\n":    "codex",
		"a = [\"x\", '''\n[mcp_servers.colab-relay]\ncommand=\"x\"\n''']\n": "codex",
		"broken = [":                               "codex",
		"broken = [1, 2\n[mcp_servers.a]\n":        "codex",
		"broken = \"x\n":                           "codex",
		"broken = {a = 1\n":                        "codex",
		"broken = {\ncommand = \"x\"\n}\n":         "codex",
		"broken = [1}\n":                           "codex",
		"broken = 1]\n":                            "codex",
		"broken =\n":                               "codex",
		"broken = # 1\n":                           "codex",
		"[broken\n":                                "codex",
		"[[broken]\n":                              "codex",
		"{\"mcpServers\": {}}\n":                   "codex",
		"[mcp_servers]\ncolab-relay = {}":          "codex",
		"[mcp_servers.colab-relay]\nargs = [\n]\n": "codex",
		"mcp_servers.colab-relay.command = \"x\"":  "codex",
		"[a]\n[mcp_servers.colab-relay.env]\nA=1":  "codex",
	} {
		p, h := user(t), host(t, name)
		path := put(t, h, p, text)
		if _, err := Plan(h, p, relay); !errors.Is(err, ErrForm) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("%q became %q", text, got)
		}
		if by := h.ByHand(relay); !strings.Contains(by, relay.Path) {
			t.Errorf("by hand: %q", by)
		}
	}
}

func TestATableBesideTextsOfSeveralLinesIsSeen(t *testing.T) {
	const table = "[mcp_servers.colab-relay]\ncommand = \"/opt/relay\"\n"
	for text, want := range map[string]string{
		"a = \"\"\"\n\\\"\"\"\n\"\"\"\n" + table: "/opt/relay",
		"a = '''\nx'''\n" + table:                "/opt/relay",
		"a = \"\"\"\n" + table + "\"\"\"\n":      "",
		"a = \"\"\"\n" + table:                   "",
	} {
		if got, ok := host(t, "codex").program([]byte(text)); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v", text, got, ok)
		}
	}
}

func TestAChangeIsWrittenOnceAndWhole(t *testing.T) {
	for _, h := range Hosts {
		p := user(t)
		change, err := Plan(h, p, relay)
		if err != nil || change.None() {
			t.Fatalf("%s: %v", h.Name, err)
		}
		if _, ok := Installed(h, p); ok {
			t.Errorf("%s: installed before it was", h.Name)
		}
		if err := change.Write(); err != nil {
			t.Fatal(err)
		}
		if program, ok := Installed(h, p); !ok || program != relay.Path {
			t.Errorf("%s: starts %q", h.Name, program)
		}
		if again, err := Plan(h, p, relay); err != nil || !again.None() {
			t.Errorf("%s: %v, a second change\n%s", h.Name, err, again.Diff())
		}
		if err := change.Write(); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: written over another program's file: %v", h.Name, err)
		}
	}
}

func TestALinkIsFollowedAndTheModeKept(t *testing.T) {
	p, h := user(t), host(t, "cursor")
	path := put(t, h, p, "{}")
	real := filepath.Join(p.Home, "dotfiles.json")
	if err := os.Rename(path, real); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, path); err != nil {
		t.Fatal(err)
	}
	change, err := Plan(h, p, relay)
	if err != nil {
		t.Fatal(err)
	}
	if err := change.Write(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	if info, err := os.Stat(real); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
}

func TestALinkThatLeadsNowhereStays(t *testing.T) {
	p, h := user(t), host(t, "cursor")
	path := put(t, h, p, "{}")
	for _, to := range []string{filepath.Join(p.Home, "gone", "mcp.json"), filepath.Base(path)} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		if _, err := Plan(h, p, relay); !errors.Is(err, ErrForm) || !strings.Contains(err.Error(), to) {
			t.Errorf("a link to %q: %v", to, err)
		}
		if got, err := os.Readlink(path); err != nil || got != to {
			t.Errorf("it leads to %q: %v", got, err)
		}
	}
}

func TestTheDiffShowsOnlyWhatChanges(t *testing.T) {
	c := Change{Path: "f", Old: []byte("token\na\nb\nc\nsecret\n"), New: []byte("token\na2\nb\nc\nd\nsecret\n")}
	if got, want := c.Diff(), "--- f\n@@ line 2\n- a\n+ a2\n@@ line 5\n+ d\n"; got != want {
		t.Errorf("%s", got)
	}
	long := strings.Repeat("x\n", maxCompared+1)
	c = Change{Path: "f", Old: []byte("a\n" + long + "b\n"), New: []byte("c\n" + long + "d\n")}
	if got := strings.Count(c.Diff(), "\n"); got != 2*(maxCompared+3)+2 {
		t.Errorf("%d lines", got)
	}
}

// Whatever valid JSON a host has, an edit keeps all of it and can be read again.
func FuzzEditJSON(f *testing.F) {
	f.Add([]byte(`{"mcpServers": {"a": {}, "colab-relay": {"env": {"k": "v"}}}, "x": [1, {"y": null}]}`))
	f.Add([]byte("{\n\t\"a\" : 1 }\n"))
	f.Add([]byte("{ }"))
	h := host(f, "cursor")
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := editJSON(text, h, relay)
		if err != nil {
			return
		}
		var before, after map[string]any
		if json.Unmarshal(bytes.TrimPrefix(got, byteOrderMark), &after) != nil {
			t.Fatalf("%q became %q", text, got)
		}
		if program, ok := h.program(got); !ok || program != relay.Path {
			t.Fatalf("%q became %q", text, got)
		}
		_ = json.Unmarshal(bytes.TrimPrefix(text, byteOrderMark), &before)
		drop(before, h.list)
		drop(after, h.list)
		if !reflect.DeepEqual(before, after) && len(before)+len(after) > 0 {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// Whatever text a host has, an edit keeps every line but those of the relay's own
// table, and a second one changes nothing.
func FuzzEditTOML(f *testing.F) {
	f.Add([]byte("[mcp_servers.colab-relay]\r\ncommand = 'x'\r\nargs = []\r\n[a]\r\n"))
	f.Add([]byte("a = \"\"\"\n[mcp_servers.a]\n\"\"\""))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := editTOML(text, relay)
		if err != nil {
			return
		}
		if program, ok := programTOML(got); !ok || program != relay.Path {
			t.Fatalf("%q became %q", text, got)
		}
		if again, err := editTOML(got, relay); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q became %q and then %q: %v", text, got, again, err)
		}
		if _, there := programTOML(text); !there && len(text) > 0 && !bytes.Contains(text, []byte(serverName)) && !bytes.HasPrefix(got, text) {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// drop takes the relay's own entry out, and a list that it leaves empty.
func drop(all map[string]any, list string) {
	servers, _ := all[list].(map[string]any)
	delete(servers, serverName)
	if len(servers) == 0 {
		delete(all, list)
	}
}
