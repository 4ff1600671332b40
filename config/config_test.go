// Package config holds sample settings for people to copy: the entry of a
// Claude Desktop config file and the environments of both programs. It has no
// code but the test that loads each sample.
package config

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// What each program reads from its environment.
var (
	executorVariables = []string{"EXECUTOR_SECRET", "EXECUTOR_SECRET_FILE", "NGROK_AUTHTOKEN"}
	relayVariables    = []string{"CHECKPOINT_DIR", "COLAB_SECRET", "COLAB_SECRET_FILE", "COLAB_URL", "LOCAL_SAVE_DIR", "RELAY_HOLD"}
)

func TestEnvironmentSamplesNameEverySetting(t *testing.T) {
	for file, known := range map[string][]string{"executor.env": executorVariables, "relay.env": relayVariables} {
		t.Run(file, func(t *testing.T) {
			got := slices.Sorted(maps.Keys(readEnv(t, file)))
			if !slices.Equal(got, known) {
				t.Errorf("%s sets %q, the program reads %q", file, got, known)
			}
		})
	}
}

func TestEnvironmentSamplesHoldNoSecret(t *testing.T) {
	for _, file := range []string{"executor.env", "relay.env"} {
		for name, value := range readEnv(t, file) {
			if value != "" && name != "RELAY_HOLD" {
				t.Errorf("%s gives %s the value %q: people would copy it", file, name, value)
			}
		}
	}
}

func TestClaudeDesktopConfigStartsTheRelay(t *testing.T) {
	var sample struct {
		MCPServers map[string]struct {
			Command string            `json:"command"`
			Args    []string          `json:"args"`
			Env     map[string]string `json:"env"`
		} `json:"mcpServers"`
	}
	f, err := os.Open("claude_desktop_config.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(&sample); err != nil {
		t.Fatalf("decoding the sample: %v", err)
	}
	entry, ok := sample.MCPServers["colab-relay"]
	if !ok {
		t.Fatal("no server named colab-relay")
	}
	if !strings.HasSuffix(entry.Command, "/relay") || !slices.Equal(entry.Args, []string{"serve"}) {
		t.Errorf("starts %q %q, not relay serve", entry.Command, entry.Args)
	}
	for name, value := range entry.Env {
		if !slices.Contains(relayVariables, name) {
			t.Errorf("sets %q, which the relay does not read", name)
		}
		if name == "RELAY_HOLD" {
			mustHold(t, value)
		}
	}
	mustHold(t, readEnv(t, "relay.env")["RELAY_HOLD"])
}

func mustHold(t *testing.T, value string) {
	t.Helper()
	if d, err := time.ParseDuration(value); err != nil || d <= 0 || d > 230*time.Second {
		t.Errorf("RELAY_HOLD=%q is not a duration up to 230s", value)
	}
}

// readEnv reads NAME=value lines. Each setting must follow a comment that says
// what it is, with nothing but other settings between.
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
				t.Errorf("%s: %q is no setting with a comment before it", file, line)
			}
			settings[name] = value
		}
	}
	return settings
}
