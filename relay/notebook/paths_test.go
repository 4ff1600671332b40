package notebook

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree is a home folder, a folder outside it, and roots.
func tree(t *testing.T) (home, outside string, roots Roots) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, outside = filepath.Join(top, "home"), filepath.Join(top, "outside")
	for _, dir := range []string{"home/work", "home/.cache/allowed", "home/.local", "outside/data", "outside/.dirs/.x"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return home, outside, Roots{Home: home, Save: filepath.Join(outside, "saved"), Dirs: []string{"~/.cache/allowed", filepath.Join(outside, ".dirs")}, Working: filepath.Join(home, "work")}
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

func TestPathsThatToolsMayUse(t *testing.T) {
	home, outside, roots := tree(t)
	link(t, filepath.Join(home, "work"), filepath.Join(outside, "data", "w"))
	for path, want := range map[string]string{
		"a.ipynb":                  filepath.Join(home, "work", "a.ipynb"),
		"sub/./x/../a.IPYNB":       filepath.Join(home, "work", "sub", "a.IPYNB"),
		"~/new/a b.ipynb":          filepath.Join(home, "new", "a b.ipynb"),
		"~/.cache/allowed/a.ipynb": filepath.Join(home, ".cache", "allowed", "a.ipynb"),
		filepath.Join(outside, "saved", "a.ipynb"):  filepath.Join(outside, "saved", "a.ipynb"),
		filepath.Join(outside, ".dirs", "a.ipynb"):  filepath.Join(outside, ".dirs", "a.ipynb"),
		filepath.Join(home, "work", "...ü.x.ipynb"): "has the hidden part",

		"":                 "it is empty",
		"a.py":             "does not end in .ipynb",
		"a.ipynb/b":        "does not end in .ipynb",
		"a\nb.ipynb":       "control characters",
		"~root/a.ipynb":    "no shell replaces",
		".ipynb":           `has the hidden part ".ipynb"`,
		"~/.local/a.ipynb": `has the hidden part ".local"`,
		"../../a.ipynb":    "add the folder to RELAY_NOTEBOOK_DIRS",
		filepath.Join(outside, ".dirs", ".x", "a.ipynb"): "has the hidden part",
		filepath.Join(outside, "data", "a.ipynb"):        "is outside your home folder",
		filepath.Join(outside, "data", "w", "a.ipynb"):   "is outside your home folder", // although it leads home
		filepath.Join(outside, "saved", "..", "b.ipynb"): "is outside your home folder",
	} {
		got, err := roots.Resolve(path)
		if filepath.IsAbs(want) {
			if err != nil || got != want {
				t.Errorf("%q is %q, %v, want %q", path, got, err, want)
			}
		} else if !errors.Is(err, ErrForbiddenPath) || !strings.Contains(err.Error(), want) || got != "" {
			t.Errorf("%q is %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestLinksDoNotLeadOutside(t *testing.T) {
	home, outside, roots := tree(t)
	for name, test := range map[string]struct{ to, want string }{
		"file.ipynb":   {filepath.Join(outside, "data", "a.ipynb"), "outside"},
		"text.ipynb":   {filepath.Join(home, "secrets.txt"), "does not end in .ipynb"},
		"hidden.ipynb": {filepath.Join(home, ".local", "a.ipynb"), "hidden part"},
		"gone.ipynb":   {filepath.Join(home, "missing.ipynb"), "a file that is missing"},
		"loop.ipynb":   {filepath.Join(home, "work", "loop.ipynb"), "cannot be looked up"},
		"good.ipynb":   {filepath.Join(home, "good.ipynb"), ""},
	} {
		if !strings.HasPrefix(name, "gone") && !strings.HasPrefix(name, "loop") {
			if err := os.WriteFile(test.to, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		link(t, test.to, filepath.Join(home, "work", name))
		got, err := roots.Resolve(name)
		if test.want == "" {
			if err != nil || got != test.to {
				t.Errorf("%s is %q, %v", name, got, err)
			}
		} else if !errors.Is(err, ErrForbiddenPath) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	link(t, outside, filepath.Join(home, "work", "folder"))
	if _, err := roots.Resolve("folder/data/new.ipynb"); !errors.Is(err, ErrForbiddenPath) || !strings.Contains(err.Error(), `folder/data/new.ipynb" is a link or inside one`) {
		t.Error(err)
	}
}

func TestAWorkingFolderOutsideTheRootsIsNamed(t *testing.T) {
	_, outside, roots := tree(t)
	for working, want := range map[string]string{"": "working folder is not known", "/": `working folder "/", which is outside`, outside: "RELAY_NOTEBOOK_DIRS"} {
		roots.Working = working
		if _, err := roots.Resolve("a.ipynb"); !errors.Is(err, ErrForbiddenPath) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", working, err)
		}
	}
}
