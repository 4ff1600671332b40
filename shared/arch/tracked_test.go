package arch

import (
	"io/fs"
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

func TestNoBuiltFileLiesAmongTheSources(t *testing.T) {
	for _, path := range builtFiles(t, top) {
		t.Errorf("%s is a built file outside the folders in .gitignore: remove it and build it elsewhere", path)
	}
}

// builtFiles returns the built files below dir that are not in an ignored folder.
func builtFiles(t *testing.T, dir string) []string {
	t.Helper()
	ignored := ignoredFolders(t)
	var built []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(ignored, d.Name()):
			return fs.SkipDir
		case !d.IsDir() && isBuilt(path):
			built = append(built, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// ignoredFolders returns the names in .gitignore that end in a slash, and .git.
func ignoredFolders(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(top, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	folders := []string{".git"}
	for _, line := range strings.Fields(string(b)) {
		if name, ok := strings.CutSuffix(line, "/"); ok {
			folders = append(folders, name)
		}
	}
	return folders
}

func TestBuiltFilesAreFound(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"a/x.go", "a/x.PYC", "a/testdata/x.so", "a/__pycache__/x.pyc", "bin/x.exe"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, want := builtFiles(t, dir), []string{"a/testdata/x.so", "a/x.PYC"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
