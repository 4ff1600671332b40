// Package stacks names, for tests and the demo only, the Python environments
// with ipykernel that the Makefile sets up under .python: old is Colab's kernel
// stack, new is the newest one. It must not be linked into either program.
package stacks

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Stack is one Python environment that has ipykernel.
type Stack struct {
	Name   string // "old" or "new"
	Python string // absolute path of its interpreter
}

// Root is the checkout's top folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Old is Colab's stack. A missing one fails the test: make python sets it up.
func Old(t testing.TB) Stack {
	t.Helper()
	s := Stack{Name: "old", Python: filepath.Join(Root(), ".python", "old", "bin", "python")}
	if _, err := os.Stat(s.Python); err != nil {
		t.Fatalf("no Python with ipykernel at %q: run make python", s.Python)
	}
	return s
}

// Notebook is the interpreter that has nbclient. A missing one fails the test
// with what to do.
func Notebook(t testing.TB) string {
	t.Helper()
	root := filepath.Join(Root(), ".python", "notebook")
	if why, err := os.ReadFile(root + ".left-out"); err == nil {
		t.Fatalf("no nbclient: %s", why)
	}
	python := filepath.Join(root, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("no Python with nbclient at %q: run make python", python)
	}
	return python
}

// All is Old and, unless make python had to leave it out, the newest stack.
func All(t testing.TB) []Stack {
	t.Helper()
	all := []Stack{Old(t)}
	root := filepath.Join(Root(), ".python", "new")
	if _, err := os.Stat(root + ".left-out"); err == nil {
		t.Log("the newest ipykernel is left out: pip reached no index when make python ran")
		return all
	}
	s := Stack{Name: "new", Python: filepath.Join(root, "bin", "python")}
	if _, err := os.Stat(s.Python); err != nil {
		t.Fatalf("no Python with ipykernel at %q: run make python", s.Python)
	}
	return append(all, s)
}

// Each runs f as a subtest on every stack.
func Each(t *testing.T, f func(t *testing.T, s Stack)) {
	t.Helper()
	for _, s := range All(t) {
		t.Run(s.Name, func(t *testing.T) { f(t, s) })
	}
}
