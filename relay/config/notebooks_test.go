package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"colabrelay/relay/config/configtest"
	"colabrelay/relay/toolsets"
)

// touch creates an empty file and its folders.
func touch(t *testing.T, parts ...string) {
	t.Helper()
	path := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNotebooksInTheWorkingFolderTurnTheirToolsOn(t *testing.T) {
	configtest.Home(t)
	for path, want := range map[string]bool{
		"a/b/c.ipynb": true, "a/b/c/d.ipynb": false, ".hidden/a.ipynb": false, "a.ipynb/x": false, "a.py": false,
	} {
		dir := t.TempDir()
		touch(t, dir, path)
		t.Chdir(dir)
		got, err := Toolsets(Settings{Getenv: configtest.Environ()})
		if err != nil || slices.Contains(got, toolsets.Notebook) != want || slices.Contains(got, toolsets.Data) {
			t.Errorf("with %s: %v %v", path, got, err)
		}
		t.Chdir(t.TempDir())
		got, err = Toolsets(Settings{Getenv: configtest.Environ("RELAY_NOTEBOOK_DIRS", t.TempDir()+string(filepath.ListSeparator)+dir)})
		if err != nil || slices.Contains(got, toolsets.Notebook) != want {
			t.Errorf("with RELAY_NOTEBOOK_DIRS and %s: %v %v", path, got, err)
		}
	}
}
