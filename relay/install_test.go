package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInstallShowsWritesAndKeeps(t *testing.T) {
	dir := home(t)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, ".cursor", "mcp.json")
	before := "{\"mcpServers\": {\"other\": {\"env\": {\"TOKEN\": \"t0ps3cret\"}}}}\n"
	write(t, file, []byte(before))
	holds := func() string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	code, out, _ := relay(t, environ(), "", "install", "cursor", "--dry-run")
	if code != 0 || !strings.Contains(out, own) || !strings.Contains(out, "Nothing was written") || holds() != before {
		t.Errorf("dry run: %d %q %q", code, out, holds())
	}
	code, out, _ = relay(t, environ(), "", "install", "cursor")
	if code != 0 || !strings.Contains(out, "Written.") || !strings.Contains(holds(), own) || !strings.Contains(holds(), "t0ps3cret") {
		t.Errorf("%d %q %q", code, out, holds())
	}
	if code, out, _ = relay(t, environ(), "", "install", "cursor"); code != 0 || !strings.Contains(out, "already") {
		t.Errorf("again: %d %q", code, out)
	}
	if _, out, _ = relay(t, environ(), "", "install"); !strings.Contains(out, "Cursor          "+own) || !strings.Contains(out, "Claude Code     -") {
		t.Errorf("the list:\n%s", out)
	}
	write(t, file, []byte("{ // mine\n}"))
	code, out, errs := relay(t, environ(), "", "install", "cursor")
	if code != 1 || out != "" || holds() != "{ // mine\n}" || !strings.Contains(errs, "not plain JSON") || !strings.Contains(errs, `"command": "`+own) {
		t.Errorf("comments: %d %q %q", code, out, errs)
	}
	if code, _, errs := relay(t, environ(), "", "install", "emacs"); code != 1 || !strings.Contains(errs, "claude-code") {
		t.Errorf("no such host: %d %q", code, errs)
	}
}

// Whatever keeps the file from being written, a person learns what to put there.
func TestWhatCannotBeWrittenIsSaidForTheHand(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"a folder that can't be made": func(dir string) error {
			return os.Symlink(filepath.Join(dir, "no", "such"), filepath.Join(dir, ".codex"))
		},
		"a file for a folder":    func(dir string) error { return os.WriteFile(filepath.Join(dir, ".codex"), nil, 0o600) },
		"a folder for a file":    func(dir string) error { return os.MkdirAll(filepath.Join(dir, ".codex", "config.toml"), 0o700) },
		"texts of several lines": func(dir string) error { return codexHolds(dir, "a = \"\"\"\n\"\"\"\n") },
	} {
		t.Run(name, func(t *testing.T) {
			if err := prepare(home(t)); err != nil {
				t.Fatal(err)
			}
			code, out, errs := relay(t, environ(), "", "install", "codex")
			if code != 1 || strings.Contains(out, "Written. ") || !strings.Contains(errs, "all the same") || !strings.Contains(errs, "[mcp_servers.colab-relay]\ncommand") {
				t.Errorf("%d %q %q", code, out, errs)
			}
		})
	}
}

func codexHolds(dir, text string) error {
	if err := os.Mkdir(filepath.Join(dir, ".codex"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ".codex", "config.toml"), []byte(text), 0o600)
}

func TestHostsOwnFoldersAreTaken(t *testing.T) {
	dir := home(t)
	getenv := environ("CLAUDE_CONFIG_DIR", filepath.Join(dir, "cc"), "CODEX_HOME", filepath.Join(dir, "cx"))
	for host, file := range map[string]string{"claude-code": "cc/.claude.json", "codex": "cx/config.toml"} {
		if code, _, errs := relay(t, getenv, "", "install", host); code != 0 {
			t.Errorf("%s: %q", host, errs)
		}
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
}
