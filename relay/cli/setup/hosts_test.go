package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/cli"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/hostconfig"
)

// A package runner puts itself on PATH for as long as it runs.
func TestTheLineForPATH(t *testing.T) {
	dir := t.TempDir()
	program := func(folders ...string) string {
		path := filepath.Join(dir, filepath.Join(folders...), cli.CommandName)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	copied := program("home", "o'my data", "bin")
	own := program("home", "bin")
	for name, c := range map[string]struct {
		onPath, from string
		want         bool
	}{
		"not on PATH":              {"", own, true},
		"on PATH":                  {own, own, false},
		"the copy is on PATH":      {copied, own, false},
		"uvx":                      {program("home", ".cache", "uv", "x"), program("home", ".cache", "uv", "x"), true},
		"npx":                      {program("home", ".npm", "_npx", "x"), program("home", ".npm", "_npx", "x"), true},
		"a download":               {"", program("tmp", "x"), true},
		"unpacked below /tmp":      {program("tmp", "y"), program("tmp", "y"), false},
		"npx, and one of the user": {own, program("home", ".npm", "_npx", "x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			user := hostconfig.User{OS: "linux", Home: filepath.Join(dir, "home"), Cache: filepath.Join(dir, "home", ".cache"), Getenv: configtest.Environ("PATH", filepath.Dir(c.onPath))}
			line := pathHint(user, c.from, copied)
			if (line != "") != c.want || c.want && !strings.Contains(line, `export PATH="`+filepath.Dir(copied)+`:$PATH"`) {
				t.Errorf("%q", line)
			}
			user.OS = "windows"
			if line := pathHint(user, c.from, copied); c.want && !strings.Contains(line, "/o''my data/bin;' + ") {
				t.Errorf("%q", line)
			}
		})
	}
}
