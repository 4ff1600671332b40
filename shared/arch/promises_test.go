package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named matches a test in a table, and the mark of one that stands for its promise although it is
// long.
var named = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`( \\(long\\))?")

// Each promise of SECURITY.md and of docs/promises.md has a short test, or says that it has none.
func TestEachPromiseHasAShortTest(t *testing.T) {
	short := shortTests(t)
	for _, path := range []string{".github/SECURITY.md", "docs/promises.md"} {
		text, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for line := range strings.Lines(string(text)) {
			promise, tests, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
			if !ok || !strings.HasPrefix(line, "| ") || promise == "promise" {
				continue
			}
			rows++
			held := false
			for _, name := range named.FindAllStringSubmatch(tests, -1) {
				isShort, exists := short[name[1]]
				if !exists {
					t.Errorf("%s: %s does not exist", path, name[1])
				}
				held = held || isShort || name[2] != ""
			}
			if !held {
				t.Errorf("%s: no short test holds the promise %q", path, promise)
			}
		}
		if rows == 0 {
			t.Errorf("%s has no table", path)
		}
	}
}

// shortTests returns all tests and fuzz targets, and whether make test runs them: whether they do
// not call tier.Long.
func shortTests(t *testing.T) map[string]bool {
	t.Helper()
	short := map[string]bool{}
	for _, f := range sources(t) {
		if !f.Test {
			continue
		}
		for _, d := range f.AST.Decls {
			function, ok := d.(*ast.FuncDecl)
			if !ok || function.Recv != nil || !strings.HasPrefix(function.Name.Name, "Test") && !strings.HasPrefix(function.Name.Name, "Fuzz") {
				continue
			}
			long := false
			ast.Inspect(function.Body, func(n ast.Node) bool {
				selector, ok := n.(*ast.SelectorExpr)
				if ok && selector.Sel.Name == "Long" {
					pkg, _ := selector.X.(*ast.Ident)
					long = long || pkg != nil && pkg.Name == "tier"
				}
				return true
			})
			short[function.Name.Name] = short[function.Name.Name] || !long
		}
	}
	return short
}
