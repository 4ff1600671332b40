package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// builtSuffixes are the name suffixes of files that a tool builds.
var builtSuffixes = []string{".a", ".dll", ".dylib", ".exe", ".o", ".pyc", ".pyd", ".pyo", ".so", ".test"}

func isBuilt(path string) bool {
	return slices.Contains(builtSuffixes, strings.ToLower(filepath.Ext(path)))
}

// A tracked built file would change with every test run.
func TestNoBuiltFileIsTracked(t *testing.T) {
	if _, err := os.Stat(filepath.Join(top, ".git")); err != nil {
		t.Log("this tree is not a git checkout")
		return
	}
	for _, path := range trackedFiles(t) {
		if isBuilt(path) {
			t.Errorf("%s is a built file: git rm --cached it", path)
		}
	}
}

// topLevel are the files and folders that the top folder may have.
var topLevel = []string{
	".ci", ".github", ".gitignore", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "Makefile", "README.md",
	"colab-bootstrap", "config", "docs", "executor", "findings", "go.mod", "go.sum", "relay", "shared",
}

func TestTopFolderHasNothingElse(t *testing.T) {
	if _, err := os.Stat(filepath.Join(top, ".git")); err != nil {
		t.Log("this tree is not a git checkout")
		return
	}
	for _, path := range trackedFiles(t) {
		if name, _, _ := strings.Cut(path, "/"); !slices.Contains(topLevel, name) {
			t.Errorf("%s is tracked, but %q does not belong to the top folder", path, name)
		}
	}
}

// trackedFiles returns the paths of all files that git tracks.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", top, "ls-files", "-z").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	tracked := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	if len(tracked) < 100 {
		t.Fatalf("git lists only %d files", len(tracked))
	}
	return tracked
}
