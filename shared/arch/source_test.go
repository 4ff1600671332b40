// Package arch tests the project's architecture: which package may import which, which
// packages may use a third-party module, and the style rules that a program can check. It
// contains only tests and must not be imported.
// Start reading at the tables in imports_test.go.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "colabrelay"

// file is one Go file of the project.
type file struct {
	Path    string // relative to the top folder, with slashes
	Package string // its folder, "executor/jupyter"
	Test    bool
	Imports []string
	AST     *ast.File
}

// parsed are all Go files of the project, once a test has asked for them.
var parsed []file

// sources returns all Go files of the project.
func sources(t *testing.T) []file {
	t.Helper()
	if parsed != nil {
		return parsed
	}
	var files []file
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".go") {
			files = append(files, parse(t, path))
		}
	})
	if len(files) == 0 {
		t.Fatal("no Go file found")
	}
	parsed = files
	return files
}

// walk calls visit with the path of each file, relative to the top folder. It skips
// folders that tools created and folders with test data.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(top), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			hidden := strings.HasPrefix(name, ".") && path != "."
			if hidden || slices.Contains([]string{"bin", "dist", "testdata"}, name) {
				return fs.SkipDir
			}
			return nil
		}
		visit(path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

const top = "../.."

func parse(t *testing.T, path string) file {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(top, path))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := parser.ParseFile(token.NewFileSet(), path, b, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	f := file{
		Path: path, Package: filepath.ToSlash(filepath.Dir(path)), Test: strings.HasSuffix(path, "_test.go"),
		AST: tree,
	}
	for _, spec := range tree.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		f.Imports = append(f.Imports, name)
	}
	return f
}
