package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"colabrelay/shared/stacks"
)

// server is an MCP server in the file of a host.
type server struct {
	Command any
	Args    []string
	Env     map[string]string
	// OpenCode's name for env.
	Environment map[string]string
}

func TestEachHostIsToldToStartTheRelayThroughTheProxy(t *testing.T) {
	for name, file := range map[string]string{"claude": "mcp.json", "codex": ".codex/config.toml", "gemini": ".gemini/settings.json", "opencode": ".config/opencode/opencode.json"} {
		t.Run(name, func(t *testing.T) {
			h := hosts[slices.IndexFunc(hosts, func(h host) bool { return h.name == name })]
			s := setting{
				home: t.TempDir(), work: "/work \"1\"", model: "http://127.0.0.1:1", prompt: "Begin.",
				server: []string{"/bin/hosts", "proxy", "/a b"}, relay: map[string]string{"COLAB_SECRET": `q"x`, "HOME": "/r"},
			}
			args, env, err := h.configure(s)
			if err != nil || !slices.Contains(args, s.prompt) {
				t.Fatalf("%q, %v", args, err)
			}
			text, err := os.ReadFile(filepath.Join(s.home, file))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text)+strings.Join(env, "\n"), s.model) {
				t.Error("the host does not get the model's URL")
			}
			got := serverIn(t, text)
			command := got.Args
			if first, ok := got.Command.(string); ok {
				command = append([]string{first}, command...)
			} else {
				for _, word := range got.Command.([]any) {
					command = append(command, word.(string))
				}
			}
			if !slices.Equal(command, s.server) || (got.Env["COLAB_SECRET"] != `q"x`) == (got.Environment["COLAB_SECRET"] != `q"x`) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// serverIn returns the relay's entry in a file.
func serverIn(t *testing.T, text []byte) server {
	t.Helper()
	var file struct {
		MCPServers map[string]server `json:"mcpServers"`
		Servers    map[string]server `toml:"mcp_servers"`
		MCP        map[string]server `json:"mcp"`
	}
	unmarshal := json.Unmarshal
	if text[0] != '{' {
		unmarshal = toml.Unmarshal
	}
	if err := unmarshal(text, &file); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, servers := range []map[string]server{file.MCPServers, file.Servers, file.MCP} {
		if s, ok := servers[serverName]; ok {
			return s
		}
	}
	t.Fatalf("no entry %s: %s", serverName, text)
	return server{}
}

// The document says what was tried.
func TestTheDocumentNamesTheInstalledVersions(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(stacks.Root(), path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var list struct{ Dependencies map[string]string }
	if err := json.Unmarshal([]byte(read("shared/e2e/hosts/node/package.json")), &list); err != nil {
		t.Fatal(err)
	}
	document := read("docs/hosts.md")
	for _, h := range hosts {
		version := strings.TrimPrefix(strings.TrimSuffix(list.Dependencies[h.pkg], "-linux-x64"), "npm:@openai/codex@")
		if want := h.title + " " + version; version == "" || !strings.Contains(document, want) {
			t.Errorf("docs/hosts.md lacks %q", want)
		}
	}
}
