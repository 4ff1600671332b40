package hostconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/program"
	"colabrelay/relay/suggest"
	"colabrelay/shared/keep"
)

// Host is an MCP host whose configuration file this package can edit.
type Host struct {
	Name  string // as `colab-relay install` accepts it
	Title string // as people know it
	After string // what a person does next

	places  func(User) []place // at least one; those with the first sign are the usual version's
	list    string             // the JSON key of its servers; empty for Codex's TOML
	typed   bool               // entries have "type": "stdio"
	command string             // its own command that adds a server, if it has one
	project string             // the file in a project's folder, if it has one
}

// Hosts are the supported hosts, in the order in which people read them.
var Hosts = []Host{
	{
		Name: "claude-desktop", Title: "Claude Desktop", After: "Quit Claude Desktop and start it again.",
		places: claudeDesktop, list: "mcpServers",
	},
	{
		Name: "claude-code", Title: "Claude Code", After: "Start Claude Code again; /mcp shows the relay.",
		places: func(u User) []place {
			file := filepath.Join(u.or("CLAUDE_CONFIG_DIR", u.Home), ".claude.json")
			return []place{{file, file}}
		}, list: "mcpServers", typed: true, command: "claude mcp add --scope user", project: ".mcp.json",
	},
	{
		Name: "cursor", Title: "Cursor", After: "Turn it on in Cursor's settings, under MCP.",
		places: func(u User) []place { return in(filepath.Join(u.Home, ".cursor"), "mcp.json") }, list: "mcpServers",
		project: ".cursor/mcp.json",
	},
	{
		Name: "vscode", Title: "VS Code", After: "Run \"MCP: List Servers\" in VS Code and start the relay.",
		places: visualStudioCode, list: "servers", typed: true, project: ".vscode/mcp.json",
	},
	{
		Name: "codex", Title: "Codex CLI", After: "Start Codex again; /mcp shows the relay.",
		places: func(u User) []place {
			return in(u.or("CODEX_HOME", filepath.Join(u.Home, ".codex")), "config.toml")
		}, command: "codex mcp add", project: ".codex/config.toml",
	},
	{
		Name: "gemini", Title: "Gemini CLI", After: "Start Gemini CLI again, in a folder that it trusts; /mcp shows the relay.",
		places: func(u User) []place {
			file := filepath.Join(u.Home, ".gemini", "settings.json")
			return []place{{file, file}} // Antigravity has the same folder
		}, list: "mcpServers", project: ".gemini/settings.json",
	},
	{
		Name: "antigravity", Title: "Antigravity", After: "Start Antigravity again; /mcp shows the relay.",
		places: func(u User) []place { return in(filepath.Join(u.Home, ".gemini", "config"), "mcp_config.json") }, list: "mcpServers",
	},
	{
		Name: "windsurf", Title: "Windsurf (Devin Desktop)", After: "Refresh the list of MCP servers in its agent panel.",
		places: windsurf, list: "mcpServers",
	},
	{
		Name: "zed", Title: "Zed", After: "Zed starts the relay at once; its agent settings list it under MCP servers.",
		places: zed, list: "context_servers", project: ".zed/settings.json",
	},
}

func in(folder string, names ...string) []place {
	return []place{{folder, filepath.Join(append([]string{folder}, names...)...)}}
}

// claudeDesktop has two places on Windows: a packaged (MSIX) app reads its own copy of
// the roaming folder.
func claudeDesktop(u User) []place {
	const file = "claude_desktop_config.json"
	all := in(filepath.Join(u.Config, "Claude"), file)
	if u.OS == "windows" {
		all = append(all, in(filepath.Join(u.Data, "Packages", "Claude_*"), "LocalCache", "Roaming", "Claude", file)...)
	}
	return all
}

func visualStudioCode(u User) []place {
	var all []place
	for _, edition := range []string{"Code", "Code - Insiders", "VSCodium"} {
		all = append(all, in(filepath.Join(u.Config, edition), "User", "mcp.json")...)
	}
	return all
}

// windsurf became Devin Desktop in June 2026, which reads another file but keeps
// Windsurf's folder.
func windsurf(u User) []place {
	const file = "mcp_config.json"
	before, now := filepath.Join(u.Home, ".codeium", "windsurf"), filepath.Join(u.Home, ".config", "devin")
	if u.OS == "windows" {
		now = filepath.Join(u.Config, "devin")
	}
	return []place{{before, filepath.Join(before, file)}, {before, filepath.Join(now, file)}, {now, filepath.Join(now, file)}}
}

func zed(u User) []place {
	switch u.OS {
	case "windows":
		return in(filepath.Join(u.Config, "Zed"), "settings.json")
	case "darwin":
		return in(filepath.Join(u.Home, ".config", "zed"), "settings.json")
	}
	return in(filepath.Join(u.Config, "zed"), "settings.json")
}

// Find returns the host of that name.
func Find(name string) (Host, error) {
	var names []string
	for _, h := range Hosts {
		if h.Name == name {
			return h, nil
		}
		names = append(names, h.Name)
	}
	last := len(names) - 1
	return Host{}, fmt.Errorf("MCP host %q is not supported: use %s or %s%s", name, strings.Join(names[:last], ", "), names[last], suggest.Meant(name, names))
}

// Found reports whether the host seems to be installed on this computer.
func (h Host) Found(u User) bool {
	for _, p := range h.places(u) {
		if len(p.found()) > 0 {
			return true
		}
	}
	return false
}

// Target is one configuration file of a host.
type Target struct {
	Host Host
	Path string // links are not followed yet

	sign   string // see place
	folder string // User.Folder
}

// Targets returns the files that the installed versions of the host read. If none is
// found, it returns the files of the usual version.
func (h Host) Targets(u User) []Target {
	var found, usual []place
	places := h.places(u)
	for _, p := range places {
		found = append(found, p.found()...)
		if p.sign == places[0].sign {
			usual = append(usual, p)
		}
	}
	if len(found) == 0 {
		found = usual
	}
	var all []Target
	for _, p := range found {
		if !slices.ContainsFunc(all, func(t Target) bool { return t.Path == p.file }) {
			all = append(all, Target{h, p.file, p.sign, u.Folder})
		}
	}
	return all
}

// ProjectTargets returns the file of the present folder, which counts before the user's
// where the host reads it.
func (h Host) ProjectTargets(u User) []Target {
	path := filepath.Join(u.Folder, h.project)
	if h.project == "" || slices.ContainsFunc(h.Targets(u), func(t Target) bool { return t.Path == path }) {
		return nil
	}
	h.Title += ", in this folder,"
	return []Target{{Host: h, Path: path, folder: u.Folder}}
}

func (h Host) edit(text []byte, c Command) ([]byte, error) {
	if h.list == "" {
		return editTOML(text, c)
	}
	return editJSON(text, h, c)
}

// remove deletes the relay's entry, which must exist.
func (h Host) remove(text []byte) ([]byte, error) {
	if h.list == "" {
		return removeTOML(text)
	}
	return removeJSON(text, h)
}

// entryOf returns a new entry that starts c.
func (h Host) entryOf(c Command) entry {
	e := entry{Command: c.Path, Args: c.Args}
	if h.typed {
		e.Type = "stdio"
	}
	return e
}

// show returns an entry as it is in the file, without members that may contain secrets.
func (h Host) show(e entry) string {
	if h.list == "" {
		return tableOf(Command{Path: e.Command, Args: e.Args})
	}
	return string(marshal(map[string]any{h.list: map[string]any{serverName: e}}, "", "  ")) + "\n"
}

// ByHand says how a person can add the relay if this package cannot.
func (h Host) ByHand(c Command) string {
	text := "edit the file so that it contains this entry:\n" + h.show(h.entryOf(c))
	if h.command != "" {
		text += fmt.Sprintf("or run: %s %s -- %s\n", h.command, serverName, strings.Join(plain.ShellWords(append([]string{c.Path}, c.Args...)), " "))
	}
	return text
}

// ByHandRemove says how a person can remove the relay if this package cannot.
func (h Host) ByHandRemove() string {
	if h.list == "" {
		return fmt.Sprintf("delete the table [mcp_servers.%s] from the file", serverName)
	}
	return fmt.Sprintf("delete %q from %q in the file", serverName, h.list)
}

// lockWait is how long an install waits for another one.
const lockWait = 30 * time.Second

// User is where a user's files are.
type User struct {
	OS     string // as in runtime.GOOS
	Home   string // the home folder
	Config string // os.UserConfigDir
	Cache  string // os.UserCacheDir
	Folder string // the present folder
	Data   string // where programs keep their own data: on Windows, %LOCALAPPDATA%
	Getenv func(string) string
}

// ThisUser is the user who runs this program.
func ThisUser(getenv func(string) string) (User, error) {
	u := User{OS: runtime.GOOS, Getenv: getenv}
	for folder, find := range map[*string]func() (string, error){&u.Home: os.UserHomeDir, &u.Config: os.UserConfigDir, &u.Cache: os.UserCacheDir, &u.Data: program.DataDir} {
		var err error
		if *folder, err = find(); err != nil {
			return User{}, fmt.Errorf("find the user's folders: %v", err)
		}
	}
	u.Folder, _ = os.Getwd()
	return u, nil
}

// or returns the folder that an environment variable names, or else folder.
func (u User) or(variable, folder string) string { return cmp.Or(u.Getenv(variable), folder) }

// Lock waits until no other process of this user installs or uninstalls, at most
// half a minute.
func (u User) Lock(ctx context.Context) (unlock func(), err error) {
	path := filepath.Join(u.Cache, "colab-relay", "install.lock")
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = keep.Lock(waiting, path)
	if errors.Is(err, keep.ErrLocked) && ctx.Err() == nil {
		return nil, fmt.Errorf("another colab-relay is installing or uninstalling (it holds %q): try again when it has ended", path)
	}
	return unlock, err
}

// place is a file that one version of a host reads.
type place struct {
	sign string // exists where this version is installed; its last element may contain one *
	file string // begins with sign if sign contains a *
}

// found returns the place if its sign exists, once for each match of its sign.
func (p place) found() (all []place) {
	dir, pattern := filepath.Split(p.sign)
	names, _ := fs.Glob(os.DirFS(filepath.Clean(dir)), pattern)
	for _, name := range names {
		sign := filepath.Join(dir, name)
		all = append(all, place{sign, strings.Replace(p.file, p.sign, sign, 1)})
	}
	return all
}

// resolve returns the file at a path. It follows a link, because replacing the link would
// separate the host from the file that the user keeps elsewhere. It refuses a link
// without a target, which may only be missing for now, as on a drive that is not mounted.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the host's config: %v", err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	if to, err := os.Readlink(path); err == nil {
		return "", fmt.Errorf("%q: %w: it is a link to %q, which cannot be followed", path, ErrForm, to)
	}
	return path, nil
}
