package hostconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Host is an MCP host whose configuration file this package can edit.
type Host struct {
	Name  string // as `colab-relay install` accepts it
	Title string // as people know it
	After string // what a person does next

	file    func(User) string
	list    string // the JSON key of its servers; empty for Codex's TOML
	typed   bool   // entries have "type": "stdio"
	command string // its own command that adds a server, if it has one
}

// Hosts are the supported hosts, in the order in which people read them.
var Hosts = []Host{
	{
		Name: "claude-desktop", Title: "Claude Desktop", After: "Quit Claude Desktop and start it again.",
		file: func(u User) string { return filepath.Join(u.Config, "Claude", "claude_desktop_config.json") }, list: "mcpServers",
	},
	{
		Name: "claude-code", Title: "Claude Code", After: "Start Claude Code again; /mcp shows the relay.", command: "claude mcp add --scope user",
		file: func(u User) string { return filepath.Join(u.or("CLAUDE_CONFIG_DIR", u.Home), ".claude.json") }, list: "mcpServers", typed: true,
	},
	{
		Name: "cursor", Title: "Cursor", After: "Turn it on in Cursor's settings, under MCP.",
		file: func(u User) string { return filepath.Join(u.Home, ".cursor", "mcp.json") }, list: "mcpServers",
	},
	{
		Name: "gemini", Title: "Gemini CLI", After: "Start Gemini CLI again; /mcp shows the relay.",
		file: func(u User) string { return filepath.Join(u.Home, ".gemini", "settings.json") }, list: "mcpServers",
	},
	{
		Name: "vscode", Title: "VS Code", After: "Run \"MCP: List Servers\" in VS Code and start the relay.",
		file: func(u User) string { return filepath.Join(u.Config, "Code", "User", "mcp.json") }, list: "servers", typed: true,
	},
	{
		Name: "codex", Title: "Codex CLI", After: "Start Codex again; /mcp shows the relay.", command: "codex mcp add",
		file: func(u User) string {
			return filepath.Join(u.or("CODEX_HOME", filepath.Join(u.Home, ".codex")), "config.toml")
		},
	},
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
	return Host{}, fmt.Errorf("MCP host %q is not supported: use %s or %s", name, strings.Join(names[:last], ", "), names[last])
}

// User is where a user's configuration files are.
type User struct {
	Home   string // the home folder
	Config string // os.UserConfigDir
	Getenv func(string) string
}

// ThisUser is the user who runs this program.
func ThisUser(getenv func(string) string) (User, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return User{}, fmt.Errorf("find the user's home folder: %v", err)
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return User{}, fmt.Errorf("find the user's config folder: %v", err)
	}
	return User{Home: home, Config: config, Getenv: getenv}, nil
}

// or returns the folder that an environment variable names, or else folder.
func (u User) or(variable, folder string) string {
	if v := u.Getenv(variable); v != "" {
		return v
	}
	return folder
}

// path returns the host's file. It follows a link, because replacing the link would
// separate the host from the file that the user keeps elsewhere. It refuses a link
// without a target, which may only be missing for now, as on a drive that is not mounted.
func (u User) path(h Host) (string, error) {
	path, err := filepath.Abs(h.file(u))
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

func (h Host) edit(text []byte, c Command) ([]byte, error) {
	if h.list == "" {
		return editTOML(text, c)
	}
	return editJSON(text, h, c)
}

func (h Host) entry(text []byte) (have entry, exists bool, err error) {
	if h.list == "" {
		return entryTOML(text)
	}
	return entryJSON(text, h)
}

// show returns an entry as it is in the file, without members that may contain secrets.
func (h Host) show(e entry) string {
	if h.list == "" {
		return tableOf(Command{e.Command, e.Args})
	}
	return string(marshal(map[string]any{h.list: map[string]any{serverName: e}}, "", "  ")) + "\n"
}

// ByHand says how a person can edit the file if this package cannot.
func (h Host) ByHand(c Command) string {
	e := entry{Command: c.Path, Args: c.Args}
	if h.typed {
		e.Type = "stdio"
	}
	text := "edit the file so that it contains this entry:\n" + h.show(e)
	if h.command != "" {
		text += fmt.Sprintf("or run: %s %s -- %s\n", h.command, serverName, shellLine(c))
	}
	return text
}

// shellLine is a command that a person can paste into a shell.
func shellLine(c Command) string {
	words := append([]string{c.Path}, c.Args...)
	for i, word := range words {
		if strings.ContainsAny(word, " ()&'") {
			words[i] = `"` + word + `"`
		}
	}
	return strings.Join(words, " ")
}
