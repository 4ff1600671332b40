package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// host is an MCP host whose model can be ours.
type host struct {
	name    string
	title   string // its name for people
	pkg     string // its package below node_modules, for its version
	program string // below node_modules
	// configure writes the host's files and returns its arguments and variables. It is nil for a
	// framework, which the document's lines start.
	configure  func(s setting) (args, env []string, err error)
	textsAs    form // how its model gets texts, nil for as they are
	errorsAs   form // the same of answers with isError
	errorTimes int  // how often its model gets the text of an error, 0 for once
	pictures   fate
	limit      string // what sets the limit of a call in the document's lines, "" if nothing does
}

// setting is what a host is started with.
type setting struct {
	home    string
	work    string // its working directory
	model   string // the URL
	log     string // of the proxy
	server  []string
	relay   map[string]string // variables of the relay
	prompt  string
	program string
}

// hosts are in the order of the checks.
var hosts = []host{
	{name: "claude", title: "Claude Code", pkg: "@anthropic-ai/claude-code-linux-x64", program: "@anthropic-ai/claude-code-linux-x64/claude", configure: claude},
	{name: "codex", title: "Codex", pkg: "@openai/codex-linux-x64", program: "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex", configure: codex},
	{name: "gemini", title: "Gemini CLI", pkg: "@google/gemini-cli", program: "@google/gemini-cli/bundle/gemini.js", configure: geminiCLI, errorsAs: inJSON},
	{name: "opencode", title: "OpenCode", pkg: "opencode-linux-x64", program: "opencode-linux-x64/bin/opencode", configure: openCode},
}

// serverName is the relay's name in each host's configuration.
const serverName = "colab-relay"

// version returns the host's name and version.
func (h host) version(modules string) (string, error) {
	data, err := os.ReadFile(filepath.Join(modules, h.pkg, "package.json"))
	if err != nil {
		return "", fmt.Errorf("run shared/e2e/hosts/setup.sh .hosts: %w", err)
	}
	var p struct{ Version string }
	if err := json.Unmarshal(data, &p); err != nil {
		return "", err
	}
	version, _, _ := strings.Cut(p.Version, "-")
	return h.title + " " + version, nil
}

// writeFile writes a file of a host's and its folder.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func claude(s setting) (args, env []string, err error) {
	args, env, err = claudeBase(s)
	return append([]string{"-p", s.prompt, "--output-format", "stream-json", "--verbose"}, args...), env, err
}

// claudeKey stands for a key, which the host wants.
const claudeKey = "none"

// claudeBase is what the interactive host has, too. With a permission mode of its own it also
// runs as root.
func claudeBase(s setting) (args, env []string, err error) {
	file := filepath.Join(s.home, "mcp.json")
	err = writeFile(file, marshal(map[string]any{"mcpServers": map[string]any{
		serverName: map[string]any{"type": "stdio", "command": s.server[0], "args": s.server[1:], "env": s.relay},
	}}))
	args = []string{"--mcp-config", file, "--strict-mcp-config", "--permission-mode", "default", "--allowedTools", "mcp__" + serverName, "ToolSearch"}
	return args, []string{"ANTHROPIC_BASE_URL=" + s.model, "ANTHROPIC_API_KEY=" + claudeKey, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1"}, err
}

func codex(s setting) (args, env []string, err error) {
	var relay []string
	for name, value := range s.relay {
		relay = append(relay, name+" = "+string(marshal(value)))
	}
	text := strings.Join([]string{
		`model = "gpt-5.5"`, `model_provider = "scripted"`, `approval_policy = "never"`, `sandbox_mode = "danger-full-access"`,
		`[model_providers.scripted]`, `name = "scripted"`, `base_url = "` + s.model + `/v1"`, `env_key = "SCRIPTED_KEY"`, `wire_api = "responses"`,
		`request_max_retries = 0`, `stream_max_retries = 0`,
		`[projects.` + string(marshal(s.work)) + `]`, `trust_level = "trusted"`,
		`[mcp_servers.` + serverName + `]`, `command = ` + string(marshal(s.server[0])), `args = ` + string(marshal(s.server[1:])),
		`env = { ` + strings.Join(relay, ", ") + ` }`, "",
	}, "\n")
	err = writeFile(filepath.Join(s.home, ".codex", "config.toml"), []byte(text))
	return []string{"exec", "--skip-git-repo-check", "--json", s.prompt}, []string{"SCRIPTED_KEY=none"}, err
}

func geminiCLI(s setting) (args, env []string, err error) {
	err = writeFile(filepath.Join(s.home, ".gemini", "settings.json"), marshal(map[string]any{
		"security":  map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
		"general":   map[string]any{"disableAutoUpdate": true, "enableAutoUpdate": false},
		"privacy":   map[string]any{"usageStatisticsEnabled": false},
		"telemetry": map[string]any{"enabled": false},
		"mcpServers": map[string]any{serverName: map[string]any{
			"command": s.server[0], "args": s.server[1:], "env": s.relay, "trust": true,
		}},
	}))
	return []string{"-p", s.prompt, "--yolo", "-m", "gemini-2.5-pro"},
		[]string{"GOOGLE_GEMINI_BASE_URL=" + s.model, "GEMINI_API_KEY=none", "GEMINI_CLI_TRUST_WORKSPACE=true", "NO_BROWSER=1"}, err
}

func openCode(s setting) (args, env []string, err error) {
	err = writeFile(filepath.Join(s.home, ".config", "opencode", "opencode.json"), marshal(map[string]any{
		"autoupdate": false, "share": "disabled", "model": "scripted/scripted", "small_model": "scripted/scripted",
		"permission": map[string]any{"*": "allow"},
		"provider": map[string]any{"scripted": map[string]any{
			"npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": map[string]any{"baseURL": s.model + "/v1", "apiKey": "none"},
			"models": map[string]any{"scripted": map[string]any{
				"name": "scripted", "attachment": true, "tool_call": true, "limit": map[string]any{"context": 200000, "output": 8000},
				"modalities": map[string]any{"input": []string{"text", "image"}, "output": []string{"text"}},
			}},
		}},
		"mcp": map[string]any{serverName: map[string]any{"type": "local", "command": s.server, "environment": s.relay, "enabled": true}},
	}))
	return []string{"run", "--model", "scripted/scripted", "--print-logs", s.prompt},
		[]string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}, err
}
