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
	"strings"
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

// pinned is an action by the hash of a commit, and its version for people. A tag can be
// moved to another commit.
var pinned = regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+\n$`)

func TestWorkflowsPinTheirActionsAndLimitTheirRights(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, ".github", "workflows", "*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the workflows are %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\npermissions:") {
			t.Errorf("%s: without permissions: at the top level, its token may have every right", file)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %q: name the action by the 40 hex digits of a commit, with its version in a comment", file, line)
			}
		}
	}
}

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
