// Package stacks finds the Python environments with ipykernel that make python sets up in
// .python, for tests and the demo: old is Colab's kernel stack, new is the newest one. It
// must not be linked into either program. Start reading at Each.
package stacks

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Stack is a Python environment with ipykernel.
type Stack struct {
	Name   string // "old" or "new"
	Python string // absolute path of its interpreter
}

// Root returns the checkout's top folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Old returns Colab's stack. It fails the test if make python has not set it up.
func Old(t testing.TB) Stack {
	t.Helper()
	s := Stack{Name: "old", Python: filepath.Join(Root(), ".python", "old", "bin", "python")}
	if _, err := os.Stat(s.Python); err != nil {
		t.Fatalf("no Python with ipykernel at %q: run make python", s.Python)
	}
	return s
}

// Notebook returns the interpreter that has nbclient. It fails the test if there is none
// and says what to do.
func Notebook(t testing.TB) string { return withModule(t, "notebook", "nbclient") }

// Server returns the interpreter that has jupyter_server and ipykernel. It fails the test if
// there is none and says what to do.
func Server(t testing.TB) string { return withModule(t, "server", "jupyter_server") }

func withModule(t testing.TB, environment, module string) string {
	t.Helper()
	root := filepath.Join(Root(), ".python", environment)
	if why, err := os.ReadFile(root + ".left-out"); err == nil {
		t.Fatalf("no %s: %s", module, why)
	}
	python := filepath.Join(root, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("no Python with %s at %q: run make python", module, python)
	}
	return python
}

// All returns Old and, in long tests, the newest stack, unless make python had to omit it.
func All(t testing.TB) []Stack {
	t.Helper()
	all := []Stack{Old(t)}
	if testing.Short() {
		return all
	}
	root := filepath.Join(Root(), ".python", "new")
	if _, err := os.Stat(root + ".left-out"); err == nil {
		t.Log("the newest ipykernel is not tested: pip reached no index when make python ran")
		return all
	}
	s := Stack{Name: "new", Python: filepath.Join(root, "bin", "python")}
	if _, err := os.Stat(s.Python); err != nil {
		t.Fatalf("no Python with ipykernel at %q: run make python", s.Python)
	}
	return append(all, s)
}

// Data returns the newest stack with polars, pyarrow, duckdb and uv; false if make python had
// to omit it.
func Data(t testing.TB) (Stack, bool) {
	t.Helper()
	root := filepath.Join(Root(), ".python", "data")
	if why, err := os.ReadFile(root + ".left-out"); err == nil {
		t.Logf("duckdb, polars and uv are not tested: %s", why)
		return Stack{}, false
	}
	s := Stack{Name: "data", Python: filepath.Join(root, "bin", "python")}
	if _, err := os.Stat(s.Python); err != nil {
		t.Fatalf("no Python with duckdb at %q: run make python", s.Python)
	}
	return s, true
}

// ColabCLI returns the wheel of Google's command line for Colab; false if make python had to
// omit it.
func ColabCLI(t testing.TB) (wheel string, found bool) {
	t.Helper()
	root := filepath.Join(Root(), ".python", "colabcli")
	if why, err := os.ReadFile(root + ".left-out"); err == nil {
		t.Logf("Google's command line is not tested: %s", why)
		return "", false
	}
	wheels, err := filepath.Glob(filepath.Join(root, "google_colab_cli-*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("no wheel of google-colab-cli in %q: run make python", root)
	}
	return wheels[0], true
}

// Each runs f as a subtest on each stack of All.
func Each(t *testing.T, f func(t *testing.T, s Stack)) {
	t.Helper()
	for _, s := range All(t) {
		t.Run(s.Name, func(t *testing.T) { f(t, s) })
	}
}
