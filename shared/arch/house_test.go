package arch

import (
	"bytes"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// maxLines is the most lines of a file.
const maxLines = 600

func TestNoFileIsTooLong(t *testing.T) {
	walk(t, func(path string) {
		if !slices.Contains([]string{".go", ".py", ".sh"}, filepath.Ext(path)) {
			return
		}
		b, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(b, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, over %d: split it by noun", path, n, maxLines)
		}
	})
}

func TestEachPackageHasOneComment(t *testing.T) {
	comments := map[string][]string{}
	for _, f := range sources(t) {
		if f.AST.Doc != nil {
			comments[f.Package] = append(comments[f.Package], f.Path)
		}
	}
	for pkg, files := range comments {
		if len(files) != 1 {
			t.Errorf("package %s has its comment in %d files %q: want one, saying what it is for, what it must not do and where to start reading", pkg, len(files), files)
		}
	}
}

func TestNothingSleeps(t *testing.T) {
	eachCall(t, func(f file, receiver, name string, _ []ast.Expr) {
		if receiver == "time" && name == "Sleep" {
			t.Errorf("%s calls time.Sleep: poll or wait for an event, with a deadline", f.Path)
		}
	})
}

// Only shared/tier skips tests: the long ones, in make test.
func TestNoTestIsSkipped(t *testing.T) {
	eachCall(t, func(f file, receiver, name string, _ []ast.Expr) {
		if f.Package != "shared/tier" && slices.Contains([]string{"t", "b", "tb", "f"}, receiver) && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, name) {
			t.Errorf("%s calls %s.%s: fail and say what is missing instead", f.Path, receiver, name)
		}
	})
}

// A lazy one is compiled when a program first needs it, which no test may do.
func TestLazyRegularExpressionsCompile(t *testing.T) {
	eachCall(t, func(f file, receiver, name string, args []ast.Expr) {
		if receiver != "lazy" {
			return
		}
		value, err := types.Eval(token.NewFileSet(), nil, token.NoPos, types.ExprString(args[0]))
		if err != nil {
			t.Errorf("%s: the regular expression is no constant: %v", f.Path, err)
		} else if _, err := regexp.Compile(constant.StringVal(value.Value)); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
	})
}

// eachCall visits every call of the form name.name(...) in the project.
func eachCall(t *testing.T, visit func(f file, receiver, name string, args []ast.Expr)) {
	t.Helper()
	for _, f := range sources(t) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
					if x, ok := selector.X.(*ast.Ident); ok {
						visit(f, x.Name, selector.Sel.Name, call.Args)
					}
				}
			}
			return true
		})
	}
}
