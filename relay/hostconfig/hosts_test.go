package hostconfig

import (
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
		if err := os.MkdirAll(filepath.Join(u.Home, folder), 0o700); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
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
	known := map[Source]string{Vendor: "its documentation or source code", Reports: "reports"}
	for _, h := range Hosts {
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
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s |\n", h.Name, h.Title, strings.Join(lines, "<br>"), key, known[h.Source])
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

func TestACommandByHandIsQuotedForAShell(t *testing.T) {
	for path, want := range map[string]string{
		"/opt/colab-relay":                  "/opt/colab-relay serve",
		"/Users/o'me/Application Support/$": `'/Users/o'\''me/Application Support/$' serve`,
		`C:\Users\A B\colab-relay.exe`:      `"C:\Users\A B\colab-relay.exe" serve`,
	} {
		if got := shellLine(Command{Path: path, Args: []string{"serve"}}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
