package hostconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
)

var relay = Command{Path: "/opt/relay", Args: []string{"serve"}}

func host(t testing.TB, name string) Host {
	t.Helper()
	h, err := Find(name)
	must(t, err)
	return h
}

// user returns a user of the test's own.
func user(t *testing.T) User {
	t.Helper()
	dir := t.TempDir()
	return User{
		OS: "linux", Home: dir, Config: filepath.Join(dir, "config"), Cache: filepath.Join(dir, "cache"), Data: filepath.Join(dir, "data"),
		Getenv: func(string) string { return "" },
	}
}

// target is the file of a host that is not found, or has one version only.
func target(h Host, u User) Target { return h.Targets(u)[0] }

func putFile(t *testing.T, h Host, u User, text string) string {
	t.Helper()
	path := target(h, u).Path
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o640))
	return path
}

// An edit keeps the rest of a file to the byte.
func TestEdits(t *testing.T) {
	for name, c := range map[string]struct{ host, before, after string }{
		"nothing there": {"cursor", "", "{\n  \"mcpServers\": {\n    \"colab-relay\": {\n      \"command\": \"/opt/relay\",\n      \"args\": [\n        \"serve\"\n      ]\n    }\n  }\n}\n"},
		"among others, tabs, no newline at the end": {
			"claude-desktop",
			"{\n\t\"theme\" : \"dark\",\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\", \"env\": {\"N\": 12345678901234567890}}\n\t}}",
			"{\n\t\"theme\" : \"dark\",\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\", \"env\": {\"N\": 12345678901234567890}},\n\t\t\"colab-relay\": {\n\t\t\t\"command\": \"/opt/relay\",\n\t\t\t\"args\": [\n\t\t\t\t\"serve\"\n\t\t\t]\n\t\t}\n\t}}",
		},
		"a relay moved: env and args stay": {
			"vscode", `{"servers": {"colab-relay": {"type": "stdio", "command": "/old/relay-linux-amd64", "args": ["--hold", "50s"], "env": {"A": "é&<"}}}}`,
			`{"servers": {"colab-relay": {"type": "stdio", "command": "/opt/relay", "args": ["--hold", "50s"], "env": {"A": "é&<"}}}}`,
		},
		"a bridge replaced": {
			"cursor", "{\n  \"mcpServers\": {\n    \"colab-relay\": {\n      \"command\": \"python\",\n      \"args\": [\"bridge.py\"],\n      \"cwd\": \"/x\"\n    }\n  }\n}",
			"{\n  \"mcpServers\": {\n    \"colab-relay\": {\n      \"command\": \"/opt/relay\",\n      \"args\": [\n        \"serve\"\n      ],\n      \"cwd\": \"/x\"\n    }\n  }\n}",
		},
		"TOML, lists of several lines and brackets in texts": {
			"codex", "a.\"b c\" = [ # [\n  \"]\", # \"\n\n  '{', {x = \"\\\"[\"},\n]\n# \"\"\"\n[[t]]\ne = \"\"\n",
			"a.\"b c\" = [ # [\n  \"]\", # \"\n\n  '{', {x = \"\\\"[\"},\n]\n# \"\"\"\n[[t]]\ne = \"\"\n\n[mcp_servers.colab-relay]\ncommand = \"/opt/relay\"\nargs = [\"serve\"]\n",
		},
		"TOML, a relay moved: args and comments stay": {
			"codex", "[mcp_servers.\"colab-relay\"] # ours\r\nargs = [\"--hold\"] # long\r\ncommand = 'C:\\relay.exe' # here\r\n[mcp_servers.colab-relay.env]\r\nA = \"b\"\r\n",
			"[mcp_servers.\"colab-relay\"] # ours\r\nargs = [\"--hold\"] # long\r\ncommand = \"/opt/relay\" # here\r\n[mcp_servers.colab-relay.env]\r\nA = \"b\"\r\n",
		},
		"TOML, a program without args replaced": {
			"codex", "\xef\xbb\xbf[mcp_servers.colab-relay]\ncommand = \"uvx\"\n[a]\nx = nan",
			"\xef\xbb\xbf[mcp_servers.colab-relay]\ncommand = \"/opt/relay\"\nargs = [\"serve\"]\n[a]\nx = nan",
		},
		"comments and trailing commas": {
			"vscode", "// mine\n{\n  \"servers\": {\n    \"a\": {}, // about a\n    // about what follows\n  },\n}\n",
			"// mine\n{\n  \"servers\": {\n    \"a\": {}, // about a\n    // about what follows\n    \"colab-relay\": {\n      \"type\": \"stdio\",\n      \"command\": \"/opt/relay\",\n      \"args\": [\n        \"serve\"\n      ]\n    },\n  },\n}\n",
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
			if have, ok, _ := h.entry(got); !ok || have.Command != relay.Path {
				t.Errorf("read back as %+v", have)
			}
		})
	}
}

func TestAFileThatCannotBeEditedIsNotChanged(t *testing.T) {
	for text, name := range map[string]string{
		`{"mcpServers": []}`:                      "cursor",
		`{"mcpServers": {"colab-relay": "x"}}`:    "cursor",
		"{":                                       "cursor",
		"// \"\n" + strings.Repeat("[", 2_000):    "cursor",
		"mcp_servers = {a = {command = \"x\"}}":   "codex",
		"a = \"\"\"\nopen":                        "codex",
		"broken = \"x\n":                          "codex",
		"mcp_servers.colab-relay.command = \"x\"": "codex",
	} {
		u, h := user(t), host(t, name)
		path := putFile(t, h, u, text)
		if _, err := Plan(target(h, u), relay); !errors.Is(err, ErrForm) || !strings.Contains(err.Error(), path) {
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

// What keeps a host from starting the relay is said, wherever the host reads it.
func TestAnEntryIsReadAsItsHostReadsIt(t *testing.T) {
	const entry = `"mcpServers": {"colab-relay": {"command": "/opt/relay", "env": {"HTTPS_PROXY": "http://a"}}}}`
	for text, c := range map[string]struct { // of the user's file, or of another one
		host, file string
		off        bool
	}{
		"[mcp_servers.colab-relay]\nenabled = false\nenv = {HTTPS_PROXY = \"http://a\"}":               {"codex", "", true},
		"[mcp_servers.colab-relay]\nenabled = true\nenv_vars = [\"HTTPS_PROXY\"]":                      {"codex", "", false},
		`{"mcpServers": {"colab-relay": {"disabled": true, "env": {"https_proxy": "$X"}}}}`:            {"windsurf", "", true},
		`{"mcp": {"excluded": ["a", "colab-relay"]}, ` + entry:                                         {"gemini", "", true},
		`{"mcp": {"allowed": ["a"]}, /* mine */ "n": 1e999, ` + entry:                                  {"gemini", "", true},
		`{"mcp": {"allowed": ["colab-relay"], "excluded": ["a"]}, ` + entry:                            {"gemini", "", false},
		`{"colab-relay": {"enabled": false}}`:                                                          {"gemini", ".gemini/mcp-server-enablement.json", true},
		`{"mcp": {"excluded": ["colab-relay"]}}`:                                                       {"gemini", "project/.gemini/settings.json", true},
		`{"context_servers": {"colab-relay": {"enabled": false, "env": {"HTTPS_PROXY": "http://a"}}}}`: {"zed", "project/.zed/settings.json", true},
		`{"projects": {"FOLDER": {"disabledMcpServers": ["colab-relay"]}}, ` + entry:                   {"claude-code", "", true},
	} {
		u, h := user(t), host(t, c.host)
		u.Folder = filepath.Join(u.Home, "project")
		u.Getenv = func(name string) string { return map[string]string{"https_proxy": "http://a", "NO_PROXY": "b"}[name] }
		path, read := putFile(t, h, u, "{"+entry), target(h, u)
		if c.file != "" {
			path = filepath.Join(u.Home, c.file)
		}
		if strings.HasPrefix(path, u.Folder) {
			read = h.ProjectTargets(u)[0]
		}
		text = strings.ReplaceAll(text, "FOLDER", u.Folder)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
		have, err := Installed(read)
		if err != nil || (have.Off != "") != c.off || len(have.env) > 0 && !slices.Equal(u.Differing(have), []string{"NO_PROXY"}) {
			t.Errorf("%s: %s: %+v, %v; %q differ", c.host, text, have, err, u.Differing(have))
		}
	}
}

func TestALinkIsFollowedAndTheModeKept(t *testing.T) {
	u, h := user(t), host(t, "cursor")
	path := putFile(t, h, u, "{}")
	real := filepath.Join(u.Home, "dotfiles.json")
	must(t, os.Rename(path, real))
	must(t, os.Symlink(real, path))
	change, err := Plan(target(h, u), relay)
	must(t, err)
	must(t, change.Write())
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	if info, err := os.Stat(real); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
}

// An edit of any JSON keeps everything else, and the result can be read again.
func FuzzEditJSON(f *testing.F) {
	f.Add([]byte(`{"mcpServers": {"a": {}, "colab-relay": {"env": {"k": "v"}}}, "x": [1, {"y": null}]}`))
	f.Add([]byte("{\n\t\"a\" : 1 }\n"))
	f.Add([]byte("{ }"))
	f.Add([]byte("{ // a\n\"b\": [1, /* c */],\n}"))
	h := host(f, "cursor")
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := h.edit(text, relay)
		if err != nil {
			return
		}
		if have, ok, _ := h.entry(got); !ok || have.Command != relay.Path {
			t.Fatalf("%q became %q", text, got)
		}
		before, after := withoutRelay(t, text, h.list), withoutRelay(t, got, h.list)
		without, err := h.remove(got)
		if err != nil {
			if bytes.Count(got, []byte(serverName)) < 2 {
				t.Fatalf("%q: the entry cannot be removed: %v", got, err)
			}
		} else if _, exists, err := h.entry(without); err != nil || exists {
			t.Fatalf("%q became %q without the relay: %v", got, without, err)
		} else if diff := cmp.Diff(before, withoutRelay(t, without, h.list)); diff != "" {
			t.Fatalf("%q became %q without the relay\n%s", got, without, diff)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("%q became %q\n%s", text, got, diff)
		}
		for _, comment := range []string{"//", "/*", "*/"} {
			n := bytes.Count(text, []byte(comment))
			if !bytes.Contains(text, []byte(serverName)) && (bytes.Count(got, []byte(comment)) < n || bytes.Count(without, []byte(comment)) < n) {
				t.Fatalf("%q became %q, and %q without the relay: a comment is gone", text, got, without)
			}
		}
	})
}

// withoutRelay returns the members of a text except the relay's own entry, and except a
// list of servers that is empty without it.
func withoutRelay(t *testing.T, text []byte, list string) map[string]any {
	t.Helper()
	all := map[string]any{}
	standard, err := hujson.Standardize(bytes.TrimPrefix(text, byteOrderMark))
	if err != nil { // an empty file
		return all
	}
	if err := json.Unmarshal(standard, &all); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	servers, _ := all[list].(map[string]any)
	delete(servers, serverName)
	if len(servers) == 0 {
		delete(all, list)
	}
	return all
}

// sameOthers reports whether two texts have the same values outside the relay's table.
func sameOthers(a, b []byte) bool {
	var texts [2]string // in Go's notation, where NaN equals NaN
	for i, text := range [][]byte{a, b} {
		all := map[string]any{}
		if toml.Unmarshal(bytes.TrimPrefix(text, byteOrderMark), &all) != nil {
			return i == 0 // what was wrong before
		}
		if servers, ok := all[tomlList].(map[string]any); ok {
			if delete(servers, serverName); len(servers) == 0 {
				delete(all, tomlList)
			}
		}
		texts[i] = fmt.Sprintf("%#v", all)
	}
	return texts[0] == texts[1]
}

// An edit of any TOML keeps the values of other tables, and a second edit changes nothing.
func FuzzEditTOML(f *testing.F) {
	for _, text := range []string{
		"[mcp_servers.colab-relay]\r\ncommand = 'x'\r\nargs = []\r\n[a]\r\n", "a = \"\"\"\n[mcp_servers.a]\n\"\"\"",
		"\xef\xbb\xbf[mcp_servers.colab-relay] # a\ncommand = 'colab-relay'\n[mcp_servers.colab-relay.env]\nA = 'b'\n# c\n\n[d]\nx = nan\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := editTOML(text, relay)
		if err != nil {
			return
		}
		have, had, _ := ofTOML.entry(text)
		if now, _, err := ofTOML.entry(got); err != nil || now.Command != relay.Path || !had && !bytes.HasPrefix(got, text) || !sameOthers(text, got) {
			t.Fatalf("%q became %q", text, got)
		}
		if again, err := editTOML(got, relay); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q became %q and then %q: %v", text, got, again, err)
		}
		without, err := removeTOML(got)
		if err != nil {
			if have.Command == "" {
				t.Fatalf("%q: the entry of this program cannot be removed: %v", got, err)
			}
			return
		}
		if _, exists, err := ofTOML.entry(without); err != nil || exists || !sameOthers(text, without) {
			t.Fatalf("%q became %q without the relay", got, without)
		}
	})
}
