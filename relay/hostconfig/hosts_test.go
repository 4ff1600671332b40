package hostconfig

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/hosts.md")

func paths(h Host, u User) (all []string) {
	for _, t := range h.Targets(u) {
		path, _ := filepath.Rel(u.Home, t.Path)
		all = append(all, path)
	}
	return all
}

// on returns a user of that operating system, who has these folders.
func on(t *testing.T, system string, folders ...string) User {
	t.Helper()
	u := user(t)
	u.OS = system
	switch system {
	case "windows":
		u.Config, u.Data = filepath.Join(u.Home, "AppData", "Roaming"), filepath.Join(u.Home, "AppData", "Local")
	case "darwin":
		u.Config = filepath.Join(u.Home, "Library", "Application Support")
	}
	for _, folder := range folders {
		must(t, os.MkdirAll(filepath.Join(u.Home, folder), 0o700))
	}
	return u
}

func TestTheFilesThatInstalledHostsRead(t *testing.T) {
	const msix = "AppData/Local/Packages/Claude_pzs8sxrjxfjjc"
	const packaged = msix + "/LocalCache/Roaming/Claude/claude_desktop_config.json"
	const roaming = "AppData/Roaming/Claude/claude_desktop_config.json"
	for name, c := range map[string]struct {
		host, system string
		folders      []string
		want         []string
	}{
		"Claude Desktop, packaged":  {"claude-desktop", "windows", []string{msix}, []string{packaged}},
		"both":                      {"claude-desktop", "windows", []string{"AppData/Roaming/Claude", msix}, []string{roaming, packaged}},
		"VSCodium":                  {"vscode", "linux", []string{"config/VSCodium"}, []string{"config/VSCodium/User/mcp.json"}},
		"VS Code and its Insiders":  {"vscode", "darwin", []string{"Library/Application Support/Code", "Library/Application Support/Code - Insiders"}, []string{"Library/Application Support/Code/User/mcp.json", "Library/Application Support/Code - Insiders/User/mcp.json"}},
		"Windsurf, perhaps updated": {"windsurf", "linux", []string{".codeium/windsurf"}, []string{".codeium/windsurf/mcp_config.json", ".config/devin/mcp_config.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			u, h := on(t, c.system, c.folders...), host(t, c.host)
			if got := paths(h, u); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if found := c.folders != nil && c.system != "darwin" || name == "VS Code and its Insiders"; h.Found(u) != found {
				t.Errorf("found is %t", !found)
			}
		})
	}
}

// docs/hosts.md lists the hosts as the code knows them; `go test ./relay/hostconfig
// -run TestTheTableOfHosts -update` writes it.
func TestTheTableOfHosts(t *testing.T) {
	const file = "../../docs/hosts.md"
	const begin, end = "<!-- hosts -->\n", "<!-- end of hosts -->\n"
	text, err := os.ReadFile(file)
	must(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no table", file)
	}
	want := before + begin + table() + end + after
	if string(text) == want {
		return
	}
	if *update {
		must(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	t.Errorf("%s does not list the hosts as hosts.go does: run this test with -update", file)
}

func table() string {
	var b strings.Builder
	b.WriteString("| HOST | program | files | key | known from |\n|---|---|---|---|---|\n")
	getenv := func(string) string { return "" }
	systems := []struct {
		name string
		user User
	}{
		{"Linux", User{OS: "linux", Home: "~", Config: "~/.config", Getenv: getenv}},
		{"macOS", User{OS: "darwin", Home: "~", Config: "~/Library/Application Support", Getenv: getenv}},
		{"Windows", User{OS: "windows", Home: "%USERPROFILE%", Config: "%APPDATA%", Data: "%LOCALAPPDATA%", Getenv: getenv}},
	}
	for _, h := range Hosts {
		known := "its documentation or source code"
		if h.Name == "antigravity" || h.Name == "windsurf" {
			known = "reports" // of users and of other projects
		}
		var lines []string
		names := map[string]string{} // the systems with these files
		for _, s := range systems {
			list := filesOn(h, s.user)
			portable := strings.ReplaceAll(strings.ReplaceAll(list, `\`, "/"), "%USERPROFILE%", "~")
			if names[portable] == "" {
				lines = append(lines, portable)
				names[portable] = s.name + ": " + list
				continue
			}
			names[portable] = strings.Replace(names[portable], ":", ", "+s.name+":", 1)
		}
		for i, portable := range lines {
			lines[i] = names[portable]
		}
		lines[0] = strings.TrimPrefix(lines[0], "Linux, macOS, Windows: ")
		key := h.list
		if key == "" {
			key = tomlList
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s |\n", h.Name, h.Title, strings.Join(lines, "<br>"), key, known)
	}
	return b.String()
}

func filesOn(h Host, u User) string {
	var all []string
	for _, p := range h.places(u) {
		path := "`" + p.file + "`"
		if u.OS == "windows" {
			path = strings.ReplaceAll(path, "/", `\`)
		}
		if !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	return strings.Join(all, ", ")
}

// contents are files of a host, as JSON and as TOML. The list of servers is called LIST.
var contents = map[string]struct{ json, toml string }{
	"empty object":  {"{}", "# nothing\n"},
	"no list":       {"{\n\t\"theme\": \"dark\"\n}\n", "model = \"x\"\n"},
	"comments":      {"// mine\n{\n  \"LIST\": {\n    \"a\": {\"command\": \"x\",}, // about a\n    /* end */\n  }, // about LIST\n}\n// bye\n", "# mine\n[mcp_servers.a] # a\ncommand = \"x\"\n\n\n# bye\n"},
	"CRLF":          {"{\r\n  \"LIST\": {\r\n    \"a\": {}\r\n  }\r\n}\r\n", "[a]\r\nb = 1\r\n"},
	"BOM":           {"\xef\xbb\xbf{\"LIST\": {}}", "\xef\xbb\xbf[a]\nb = 1\n"},
	"other servers": {"{\"LIST\":{\"a\":{\"command\":\"x\",\"env\":{\"N\":12345678901234567890}},\"b\":{}},\"z\":[1,2]}", "[mcp_servers.a]\ncommand = \"x\"\n[z]\n"},
	"other program": {"{\"LIST\": {\"colab-relay\": {\"type\": \"stdio\", \"command\": \"python\", \"args\": [\"bridge.py\"]}, \"b\": {}}}", "[mcp_servers.colab-relay]\ncommand = \"python\" # py\nargs = [\"bridge.py\"]\n\n[z]\n"},
}

// Install, install again and uninstall give the file that was there, to the byte, in
// every host.
func TestUninstallRestoresTheFile(t *testing.T) {
	for _, h := range Hosts {
		for name, c := range contents {
			t.Run(h.Name+"/"+name, func(t *testing.T) {
				t.Parallel() // each write waits for the disk
				u := user(t)
				text := strings.ReplaceAll(c.json, "LIST", h.list)
				if h.list == "" {
					text = c.toml
				}
				path := putFile(t, h, u, text)
				installTwice(t, target(h, u))
				if got, err := os.ReadFile(backupOf(path)); err != nil || string(got) != text {
					t.Errorf("the backup is %q: %v", got, err)
				}
				if info, err := os.Stat(backupOf(path)); err != nil || info.Mode().Perm() != 0o640 {
					t.Errorf("the backup has mode %v: %v", info.Mode(), err)
				}
				uninstallTwice(t, target(h, u))
				if got, err := os.ReadFile(path); err != nil || string(got) != text {
					t.Errorf("%q became %q: %v", text, got, err)
				}
				if _, err := os.Stat(backupOf(path)); err == nil {
					t.Error("the backup is still there")
				}
			})
		}
	}
}

func TestUninstallDeletesTheFileThatInstallMade(t *testing.T) {
	for _, h := range Hosts {
		u := user(t)
		for _, each := range h.Targets(u) {
			installTwice(t, each)
			if _, err := os.Stat(backupOf(each.Path)); err == nil {
				t.Errorf("%s: a backup of nothing", h.Name)
			}
		}
		for _, each := range h.Targets(u) {
			uninstallTwice(t, each)
		}
		if h.Found(u) {
			t.Errorf("%s counts as found after its file was deleted", h.Name)
		}
	}
}

func installTwice(t *testing.T, to Target) {
	t.Helper()
	for i := range 2 {
		change, err := Plan(to, relay)
		if err != nil || change.None() != (i == 1) {
			t.Fatalf("install %d: %v", i, err)
		}
		if i == 1 {
			continue
		}
		must(t, change.Write())
		if err := change.Write(); !errors.Is(err, ErrChanged) {
			t.Errorf("written over another program's file: %v", err)
		}
	}
	if have, err := Installed(to); err != nil || have.Command != relay.Path {
		t.Fatalf("it starts %q: %v", have.Command, err)
	}
}

// uninstallTwice leaves an entry of another program, if there was one.
func uninstallTwice(t *testing.T, from Target) {
	t.Helper()
	change, err := PlanRemoval(from)
	if err == nil {
		err = change.Write()
	}
	must(t, err)
	if _, err := PlanRemoval(from); !errors.Is(err, ErrNotInstalled) && !errors.Is(err, ErrOther) {
		t.Errorf("a second uninstall: %v", err)
	}
}

// If something else has changed since, uninstall removes the entry and keeps the rest.
func TestUninstallKeepsLaterChanges(t *testing.T) {
	for name, c := range map[string]struct{ host, now, after string }{
		"first of two":     {"cursor", `{"mcpServers": {RELAY, "b": {}}}`, `{"mcpServers": { "b": {}}}`},
		"a trailing comma": {"vscode", "{\"servers\": {\n  \"a\": {},\n  RELAY,\n}}", "{\"servers\": {\n  \"a\": {},\n}}"},
		"CRLF, between":    {"gemini", "{\"mcpServers\": {\r\n  \"a\": {},\r\n  RELAY,\r\n  \"b\": {}\r\n}}\r\n", "{\"mcpServers\": {\r\n  \"a\": {},\r\n  \"b\": {}\r\n}}\r\n"},
		"TOML, between, with tables in it": {
			"codex", "# top\n[a]\nb = 1\n\n# ours\n[mcp_servers.colab-relay] # x\ncommand = \"/opt/relay\"\n# in it\nargs = [\n  \"serve\",\n]\n\n[mcp_servers.colab-relay.env]\nA = \"\"\"\n[z]\n\"\"\"\n\n# about c\n[c]\n",
			"# top\n[a]\nb = 1\n\n# ours\n\n# about c\n[c]\n",
		},
		"TOML, spread over the file": {"codex", "[mcp_servers.colab-relay.env]\nA = 'b'\n[a]\n[mcp_servers.\"colab-relay\"]\ncommand = 'relay'\n[[b]]\n", "[a]\n[[b]]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h, u := host(t, c.host), user(t)
			now := strings.ReplaceAll(c.now, "RELAY", `"colab-relay": {"command": "/opt/relay", "args": ["serve"], "env": {"A": "b"} /* x */}`)
			path := putFile(t, h, u, now)
			change, err := PlanRemoval(target(h, u))
			must(t, err)
			must(t, change.Write())
			if got, _ := os.ReadFile(path); string(got) != c.after {
				t.Errorf("%q\nwant\n%q", got, c.after)
			}
		})
	}
}

func TestTheFirstBackupIsTheOnlyOne(t *testing.T) {
	h, u := host(t, "cursor"), user(t)
	path := putFile(t, h, u, `{"first": 1}`)
	installTwice(t, target(h, u))
	putFile(t, h, u, `{"second": 2}`)
	installTwice(t, target(h, u))
	if got, err := os.ReadFile(backupOf(path)); err != nil || string(got) != `{"first": 1}` {
		t.Errorf("the backup is %q: %v", got, err)
	}
	change, err := PlanRemoval(target(h, u))
	if err != nil || change.Restored || change.Backup != backupOf(path) {
		t.Fatalf("%+v: %v", change, err)
	}
	must(t, change.Write())
	all, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if len(all) != 2 {
		t.Errorf("beside the file: %q", all)
	}
	if got, _ := os.ReadFile(path); !bytes.HasPrefix(got, []byte(`{"second": 2`)) {
		t.Errorf("became %q", got)
	}
}

func TestUninstallLeavesOtherThingsAlone(t *testing.T) {
	for text, c := range map[string]struct {
		host string
		want error
	}{
		`{"mcpServers": {"colab-relay": {"command": "uvx", "args": ["colab-relay"]}}}`:                              {"cursor", ErrOther},
		`{"mcpServers": {"colab-relay": {"command": "uvx"}, "colab-relay": {"command": "relay"}}}`:                  {"cursor", ErrForm},
		"mcp_servers.colab-relay.command = 'relay'\n":                                                               {"codex", ErrForm},
		"[mcp_servers.colab-relay]\ncommand = 'relay'\n[broken\n":                                                   {"codex", ErrForm},
		`{"mcpServers": {"a": {"command": "colab-relay"}}, "servers": {"colab-relay": {"command": "colab-relay"}}}`: {"cursor", ErrNotInstalled},
	} {
		u, h := user(t), host(t, c.host)
		path := putFile(t, h, u, text)
		if _, err := PlanRemoval(target(h, u)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", text, err)
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestAFilePastTheBoundIsRefused(t *testing.T) {
	h, u := host(t, "cursor"), user(t)
	path := putFile(t, h, u, "{}")
	must(t, os.Truncate(path, maxFile+1))
	if _, err := Plan(target(h, u), relay); !errors.Is(err, ErrForm) || !strings.Contains(err.Error(), "over 32 MiB") {
		t.Errorf("%v", err)
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
