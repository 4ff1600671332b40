package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const top = "../.."

func TestAReleaseNeedsAnAddress(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "release", "RELEASES=", "VERSION=v1.0.0", "DIST="+filepath.Dir(kept))
	cmd.Dir = top
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "MAKE") })
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "make release: RELEASES is empty: set it to") {
		t.Errorf("make release without an address: %v\n%s", err, out)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("it changed the folder of the release: %v", err)
	}
}

// installs is a command that installs or runs a package, which it captures. ours is a name
// of our packages.
var (
	installs = regexp.MustCompile(`\b(?:(?:pip3?|pipx|uv tool|uv pip|npm) (?:install|run|exec)|uvx|npx)(?: +-\S+)* +([^\s` + "`" + `]+)`)
	ours     = regexp.MustCompile(`^colab[-_]relay[\w-]*([@=].*)?$`)
)

// byName reports whether a text installs one of our packages by its name, which on an index
// is anybody's until we have published it there.
func byName(text string) bool {
	for _, match := range installs.FindAllStringSubmatch(text, -1) {
		if ours.MatchString(match[1]) {
			return true
		}
	}
	return false
}

func TestDocumentsInstallFromFilesAndAddressesOnly(t *testing.T) {
	read := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d.IsDir() && path != top && strings.HasPrefix(d.Name(), ".") && d.Name() != ".github" {
				return filepath.SkipDir
			}
			return err
		}
		if !slices.Contains([]string{".md", ".txt", ".ipynb", ".ipy"}, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		if read++; byName(string(text)) {
			t.Errorf("%s installs a package by a name that is not ours yet", path)
		}
		return err
	})
	if err != nil || read < 10 {
		t.Errorf("%d documents: %v", read, err)
	}
}
