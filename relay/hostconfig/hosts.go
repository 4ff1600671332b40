package hostconfig

import (
	"fmt"
	"os"
	"path/filepath"
)

// Host is an MCP host whose configuration this package knows.
type Host struct {
	Name  string // as `relay install` takes it
	Title string // as people know it
	After string // what a person does next

	file    func(Place) string
	list    string // the JSON key of its servers; empty for Codex's TOML
	typed   bool   // entries say "type": "stdio"
	command string // its own way to add a server, where it has one
}

// Hosts are the ones known, in the order people read them.
var Hosts = []Host{
	{
		Name: "claude-desktop", Title: "Claude Desktop", After: "Quit Claude Desktop and start it again.",
		file: func(p Place) string { return filepath.Join(p.Config, "Claude", "claude_desktop_config.json") }, list: "mcpServers",
	},
	{
		Name: "claude-code", Title: "Claude Code", After: "Start Claude Code again; /mcp shows it.", command: "claude mcp add --scope user",
		file: func(p Place) string { return filepath.Join(p.or("CLAUDE_CONFIG_DIR", p.Home), ".claude.json") }, list: "mcpServers", typed: true,
	},
	{
		Name: "cursor", Title: "Cursor", After: "Switch it on in Cursor's settings, under MCP.",
		file: func(p Place) string { return filepath.Join(p.Home, ".cursor", "mcp.json") }, list: "mcpServers",
	},
	{
		Name: "gemini", Title: "Gemini CLI", After: "Start Gemini CLI again; /mcp shows it.",
		file: func(p Place) string { return filepath.Join(p.Home, ".gemini", "settings.json") }, list: "mcpServers",
	},
	{
		Name: "vscode", Title: "VS Code", After: "Run \"MCP: List Servers\" in VS Code and start it.",
		file: func(p Place) string { return filepath.Join(p.Config, "Code", "User", "mcp.json") }, list: "servers", typed: true,
	},
	{
		Name: "codex", Title: "Codex CLI", After: "Start Codex again; /mcp shows it.", command: "codex mcp add",
		file: func(p Place) string {
			return filepath.Join(p.or("CODEX_HOME", filepath.Join(p.Home, ".codex")), "config.toml")
		},
	},
}

// Find is the host of that name.
func Find(name string) (Host, error) {
	var names []string
	for _, h := range Hosts {
		if h.Name == name {
			return h, nil
		}
		names = append(names, h.Name)
	}
	return Host{}, fmt.Errorf("host %q is not known: use one of %q", name, names)
}

// Place is where a user's configuration files lie.
type Place struct {
	Home   string // the user's own folder
	Config string // where programs keep configurations: os.UserConfigDir
	Getenv func(string) string
}

// or is a folder that an environment variable may name.
func (p Place) or(variable, folder string) string {
	if v := p.Getenv(variable); v != "" {
		return v
	}
	return folder
}

// file is the host's file. A link is followed: many keep such files elsewhere, and
// replacing the link itself would cut the two apart. One that leads nowhere is
// refused: what it means may only be missing for now, as on a drive not mounted.
func (p Place) file(h Host) (string, error) {
	path, err := filepath.Abs(h.file(p))
	if err != nil {
		return "", fmt.Errorf("find the host's config: %v", err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	if to, err := os.Readlink(path); err == nil {
		return "", fmt.Errorf("%q: %w: it is a link to %q, which can't be followed", path, ErrForm, to)
	}
	return path, nil
}

func (h Host) edit(text []byte, c Command) ([]byte, error) {
	if h.list == "" {
		return editTOML(text, c)
	}
	return editJSON(text, h, c)
}

func (h Host) program(text []byte) (string, bool) {
	if h.list == "" {
		return programTOML(text)
	}
	return programJSON(text, h)
}

// ByHand is what a person puts into the file, or runs, where this package may not.
func (h Host) ByHand(c Command) string {
	var b []byte
	if h.list == "" {
		b, _ = editTOML(nil, c)
	} else {
		b, _ = editJSON(nil, h, c)
	}
	text := "add this to it:\n" + string(b)
	if h.command != "" {
		text += fmt.Sprintf("or run: %s %s -- %s\n", h.command, serverName, shellLine(c))
	}
	return text
}
