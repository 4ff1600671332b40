// Package config holds sample settings to copy: the entry of a Claude Desktop config
// file and the environments of both programs. Its only code is the test that loads
// each sample.
package config

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/within"
)

// forTests are variables that only tests set, to replace ngrok's service.
var forTests = []string{"COLAB_RELAY_NGROK_CA", "COLAB_RELAY_NGROK_SERVER"}

// printed are variables of the executor that relay init prints and the relay does not
// read.
var printed = []string{"EXECUTOR_SECRET"}

// ofTheSystem are variables that the programs read and the user's system, or Jupyter, sets.
var ofTheSystem = []string{"XDG_DATA_HOME", "JPY_PARENT_PID"}

// readers are the packages of each program that read its settings.
var readers = map[string][]string{"executor": {"executor"}, "relay": {"relay", "relay/cli", "relay/cli/*", "relay/config", "relay/pairing"}}

func TestEnvironmentSamplesNameEverySetting(t *testing.T) {
	for file, program := range map[string]string{"executor.env": "executor", "relay.env": "relay"} {
		t.Run(file, func(t *testing.T) {
			sample, read := slices.Sorted(maps.Keys(readEnv(t, file))), variablesOf(t, program)
			if !slices.Equal(sample, read) {
				t.Errorf("%s sets %q, %s reads %q", file, sample, program, read)
			}
		})
	}
}

// variablesOf returns the environment variables that a program's source names: its
// string literals of that form.
func variablesOf(t *testing.T, program string) []string {
	t.Helper()
	var files []string
	for _, folder := range readers[program] {
		found, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no source in %s: %v", folder, err)
		}
		files = append(files, found...)
	}
	literal := regexp.MustCompile(`"([A-Z]+_[A-Z_]+)"`)
	found := map[string]bool{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range literal.FindAllSubmatch(b, -1) {
			if name := string(match[1]); !strings.HasSuffix(file, "_test.go") && !slices.Contains(forTests, name) && !slices.Contains(ofTheSystem, name) && (program != "relay" || !slices.Contains(printed, name)) {
				found[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func TestEnvironmentSamplesHoldNoSecret(t *testing.T) {
	for _, file := range []string{"executor.env", "relay.env"} {
		for name, value := range readEnv(t, file) {
			if value != "" && !strings.HasPrefix(name, "RELAY_") {
				t.Errorf("%s gives %s the value %q: people would copy it", file, name, value)
			}
		}
	}
}

// entry is a server's entry in Claude Desktop's config.
type entry struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
}

func claudeEntry(t *testing.T) entry {
	t.Helper()
	f, err := os.Open("claude_desktop_config.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var sample struct {
		MCPServers map[string]entry `json:"mcpServers"`
	}
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(&sample); err != nil {
		t.Fatalf("decode the sample: %v", err)
	}
	e, ok := sample.MCPServers["colab-relay"]
	if !ok {
		t.Fatal("no server named colab-relay")
	}
	return e
}

func TestClaudeDesktopConfigNamesTheRelayAndItsSettings(t *testing.T) {
	e := claudeEntry(t)
	if filepath.Base(e.Command) != "colab-relay" || !filepath.IsAbs(e.Command) {
		t.Errorf("the command is %q, not the full path of colab-relay: a host's PATH differs from the shell's", e.Command)
	}
	known := variablesOf(t, "relay")
	for name := range e.Env {
		if !slices.Contains(known, name) {
			t.Errorf("it sets %q, which the relay does not read", name)
		}
	}
}

// README.md shows the same entry.
func TestTheREADMEShowsTheEntryOfClaudeDesktop(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	sample, err := os.ReadFile("claude_desktop_config.json")
	if err != nil {
		t.Fatal(err)
	}
	if block := "```json\n" + string(sample) + "```\n"; strings.Count(string(readme), block) != 1 {
		t.Errorf("README.md does not show claude_desktop_config.json once:\n%s", block)
	}
}

// hello is what a host sends at its start.
const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"config","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`

// The real relay starts with the samples' settings and answers the host.
func TestRelayStartsWithTheSamples(t *testing.T) {
	relay, home := builtRelay(t), t.TempDir()
	e := claudeEntry(t)
	for name, settings := range map[string]map[string]string{"claude_desktop_config.json": e.Env, "relay.env": readEnv(t, "relay.env")} {
		t.Run(name, func(t *testing.T) {
			out, stderr := serve(t, relay, e.Args, home, settings, hello)
			for _, want := range []string{`"serverInfo"`, `"name":"check_colab_connection"`} {
				if !strings.Contains(out, want) {
					t.Errorf("the relay did not answer %s:\n%s", want, out)
				}
			}
			if strings.Contains(stderr, "level=ERROR") || strings.Contains(stderr, "level=WARN") {
				t.Errorf("the relay warns about its settings:\n%s", stderr)
			}
		})
	}
}

// With the .mcpb's settings, an unpaired relay names the field and no command.
func TestARelayInAnExtensionNamesItsField(t *testing.T) {
	call := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"check_colab_connection","arguments":{}}}` + "\n"
	out, _ := serve(t, builtRelay(t), []string{"serve"}, t.TempDir(), map[string]string{"COLAB_PAIRING": "", "RELAY_PAIRING_FIELD": "Pairing string"}, hello+call)
	answer := "" // to the call; the three answers come in any order
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"id":3`) {
			answer = line
		}
	}
	if !strings.Contains(answer, `\"Pairing string\" in the extension's settings`) || strings.Contains(answer, "`colab-relay ") {
		t.Errorf("the relay answered:\n%s", out)
	}
}

// serve starts the relay with these settings, sends it what a host writes, which ends once each
// request is answered, and returns what it wrote.
func serve(t *testing.T, relay string, args []string, home string, settings map[string]string, host string) (out, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(within.Context(t), relay, args...)
	cmd.Env = []string{"HOME=" + home}
	for name, value := range settings {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var o, e strings.Builder
	cmd.Stderr = &e
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, host); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(answers)
	for range strings.Count(host, `"id":`) {
		line, err := lines.ReadString('\n')
		if o.WriteString(line); err != nil {
			break // the relay has ended, and why is in e
		}
	}
	in.Close()
	_, copied := io.Copy(&o, lines)
	if err := cmp.Or(copied, cmd.Wait()); err != nil {
		t.Fatalf("relay %q: %v\n%s", args, err, e.String())
	}
	return o.String(), e.String()
}

// builtRelay returns the program that RELAY_BIN names, or else builds the relay.
func builtRelay(t *testing.T) string {
	t.Helper()
	if relay := os.Getenv("RELAY_BIN"); relay != "" {
		return relay
	}
	relay := filepath.Join(t.TempDir(), "relay")
	if out, err := exec.Command("go", "build", "-o", relay, "../relay").CombinedOutput(); err != nil {
		t.Fatalf("build the relay: %v\n%s", err, out)
	}
	return relay
}

// readEnv reads NAME=value lines. A comment that explains it must precede each setting
// or group of settings.
func readEnv(t *testing.T, file string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	settings, commented := map[string]string{}, false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			commented = false
		case strings.HasPrefix(line, "#"):
			commented = true
		default:
			name, value, ok := strings.Cut(line, "=")
			if !ok || !commented {
				t.Errorf("%s: %q is not a setting with a comment before it", file, line)
			}
			settings[name] = value
		}
	}
	return settings
}
