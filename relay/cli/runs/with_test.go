package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestPlacesBesideAProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ file, local, want string }{
		{"main.py", "helpers.py", "helpers.py"},
		{"main.py", "pkg/util.py", "pkg/util.py"},
		{"main.py", "./pkg/", "pkg"},
		{"src/main.py", "src/helpers.py", "helpers.py"},
		{"src/main.py", "src/pkg/../pkg", "pkg"},
		{"src/main.py", "src", "."},
		{"src/main.py", "lib/helpers.py", "helpers.py"}, // elsewhere
		{"src/main.py", "..", filepath.Base(filepath.Dir(mustAbs(t, ".")))},
		{"src/main.py", "..a/x.py", "x.py"},
		{"main.py", "..a/x.py", "..a/x.py"},
		{"", "pkg/util.py", "pkg/util.py"}, // code
		{"", mustAbs(t, "pkg"), "pkg"},
	} {
		if got, err := placeBeside(filepath.FromSlash(c.file), filepath.FromSlash(c.local)); err != nil || got != c.want {
			t.Errorf("%q of %q: %q, %v, want %q", c.local, c.file, got, err, c.want)
		}
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}

func TestLocalModules(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(paths ...string) {
		for _, path := range paths {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("one.py", "src/two.py", "pkg/util.py", "pkg/deep/__init__.py", "outer/inner/x.py", "data/a.csv", "a/b/c/d.py", "dir.py/x")
	for _, c := range []struct{ folder, module, want string }{
		{".", "one", "one.py"},
		{"src", "two", "src/two.py"},
		{".", "pkg", "pkg"},
		{".", "pkg.util", "pkg"},
		{".", "pkg.deep", "pkg"},
		{".", "pkg.none", ""},
		{".", "outer", "outer"}, // without an __init__
		{".", "a", ""},          // too deep to be meant
		{".", "data", ""},
		{".", "dir", ""},
		{".", "two", ""},
		{"none", "one", ""},
	} {
		got, found := localModule(c.folder, c.module)
		if filepath.ToSlash(got) != c.want || found != (c.want != "") {
			t.Errorf("%s in %s: %q, want %q", c.module, c.folder, got, c.want)
		}
	}
	for i := range maxListed + 500 {
		write(fmt.Sprintf("huge/%d.csv", i))
	}
	write("full/__init__.py")
	if hasModule("huge", 2) || !hasModule("full", 1) {
		t.Error("a folder of data is a package, or a package is none")
	}
}

// A VM chooses the name that it does not find.
func TestNamesOfModulesAreNoPaths(t *testing.T) {
	for name, want := range map[string]bool{"a": true, "_a1.ä": true, "": false, "../a": false, "a/b": false, ".": false, "a..b": false, "1a": false, "a\x1b": false, "a\n": false, "/etc": false} {
		if got := moduleName.MatchString(name); got != want {
			t.Errorf("%q is a name: %t", name, got)
		}
	}
}
