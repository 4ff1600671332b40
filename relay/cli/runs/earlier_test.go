package runs

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// earlierTree makes the files, each with its own path as its content, and changes to their folder.
func earlierTree(t *testing.T, paths ...string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// writeProgram writes a program.
func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func digestOf(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }

func TestModulesThatChangedSinceTheirUpload(t *testing.T) {
	earlierTree(t, "src/train.py", "src/helpers.py", "src/same.py", "src/pkg/util.py", "src/data.csv", "src/never.py",
		"src/.hidden/a.py", "src/env/pyvenv.cfg", "src/env/lib/b.py", "src/x/site-packages/c.py", "src/gone.py/d", "outside.py")
	writeProgram(t, "src/train.py", "import helpers, same, never\nfrom pkg import util\nimport data, a, b, c, gone, outside, absent\n")
	other := digestOf("other")
	uploaded := map[string]string{
		"/content/train.py":                other, // it is sent
		"/content/helpers.py":              other,
		"/content/same.py":                 digestOf("src/same.py"),
		"/content/old/same.py":             other, // not the one of this folder
		"/content/pkg/util.py":             other,
		"/content/data.csv":                other,
		"/content/.hidden/a.py":            other,
		"/content/env/lib/b.py":            other,
		"/content/x/site-packages/c.py":    other,
		"/content/gone.py":                 other,
		"/content/../outside.py":           other,
		"/content/xhelpers.py":             other,
		"/content/lib/elsewhere/absent.py": other,
	}
	var got []string
	for _, f := range earlierFiles(filepath.FromSlash("src/train.py"), uploaded) {
		got = append(got, filepath.ToSlash(f.local)+" "+f.remote)
	}
	want := []string{"src/helpers.py /content/helpers.py", "src/pkg/util.py /content/pkg/util.py"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if found := earlierFiles("none/train.py", uploaded); found != nil {
		t.Errorf("a folder that does not exist has %v", found)
	}
}
