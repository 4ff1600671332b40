package runs

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
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

func TestTheSearchForChangedModulesIsBounded(t *testing.T) {
	earlierTree(t, "train.py", "z.py")
	writeProgram(t, "train.py", "import z")
	uploaded := map[string]string{"/content/z.py": digestOf("other")}
	for i := range maxEarlierFiles - 1 {
		uploaded[fmt.Sprintf("/content/a%d.py", i)] = digestOf("other")
	}
	if found := earlierFiles("train.py", uploaded); len(found) != 1 {
		t.Errorf("of %d files: %v", len(uploaded), found)
	}
	uploaded["/content/b.py"] = digestOf("other")
	if found := earlierFiles("train.py", uploaded); len(found) != 0 {
		t.Errorf("of %d files: %v", len(uploaded), found)
	}
	const source = int64(len("import z"))
	for size, want := range map[int64]int{maxEarlierBytes - source: 1, maxEarlierBytes - source + 1: 0} {
		if err := os.Truncate("z.py", size); err != nil {
			t.Fatal(err)
		}
		if found := earlierFiles("train.py", map[string]string{"/content/z.py": digestOf("other")}); len(found) != want {
			t.Errorf("%d bytes: %v", size, found)
		}
	}
	deep := strings.Repeat("d/", maxEarlierDepth)
	earlierTree(t, "train.py", deep+"e.py", deep[2:]+"f.py")
	writeProgram(t, "train.py", "import d.e, d.f")
	found := earlierFiles("train.py", map[string]string{"/" + deep + "e.py": digestOf("other"), "/" + deep[2:] + "f.py": digestOf("other")})
	if len(found) != 1 || filepath.Base(found[0].local) != "f.py" {
		t.Errorf("deep folders: %v", found)
	}
}

func TestTheNoteNamesAFewChangedModules(t *testing.T) {
	o := runOptions{flags: pflag.NewFlagSet("", pflag.ContinueOnError), args: []string{"train.py"}}
	o.Runtime = "gpu"
	var many []earlierFile
	for i := range maxEarlierNamed + 2 {
		many = append(many, earlierFile{fmt.Sprintf("%d.py", i), fmt.Sprintf("/content/%d.py", i)})
	}
	for _, c := range []struct {
		found []earlierFile
		want  string
	}{
		{[]earlierFile{{"helpers.py", "/content/helpers.py"}}, "helpers.py changed here since it was put on the VM, which has the earlier one: `colab-relay put --runtime gpu helpers.py`, or `colab-relay run --with helpers.py train.py`"},
		{[]earlierFile{{"pkg/a b.py", "/content/pkg/a b.py"}}, "pkg/a b.py changed here since it was put on the VM, which has the earlier one: `colab-relay put --runtime gpu --to /content/pkg 'pkg/a b.py'`, or `colab-relay run --with 'pkg/a b.py' train.py`"},
		{[]earlierFile{many[0], {"pkg/a.py", "/content/pkg/a.py"}}, "0.py, pkg/a.py changed here since they were put on the VM, which has the earlier ones: `colab-relay run --with 0.py --with pkg/a.py train.py`"},
		{[]earlierFile{{"helpers.py", "/tmp/x/helpers.py"}}, "helpers.py changed here since it was put on the VM, which has the earlier one: `colab-relay put --runtime gpu --to /tmp/x helpers.py`, or `colab-relay run --with helpers.py train.py`"},
		{[]earlierFile{{"/a.py", "/content/a.py"}, {"/b.py", "/content/b.py"}}, "/a.py, /b.py changed here since they were put on the VM, which has the earlier ones: `colab-relay put --runtime gpu --to /content /a.py /b.py`, or `colab-relay run --with /a.py --with /b.py train.py`"},
		{many, "0.py, 1.py, 2.py, 3.py, 4.py and 2 more changed here since they were put on the VM, which has the earlier ones: `colab-relay put --runtime gpu 0.py 1.py 2.py 3.py 4.py`, or `colab-relay run --with 0.py --with 1.py --with 2.py --with 3.py --with 4.py train.py`"},
	} {
		if got := o.earlierNote(c.found, "/content"); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

func TestOnlyModulesThatTheProgramImportsCount(t *testing.T) {
	for _, c := range []struct{ program, other, want string }{
		{"print(1)", "import helpers", ""},
		{"helpers = 1", "", ""},
		{"import helpers", "", "helpers.py"},
		{"import os; import helpers as h", "", "helpers.py"},
		{"try: from helpers import f\nexcept ImportError: pass", "", "helpers.py"},
		{"import os, \\\n  helpers", "", "helpers.py"},
		{"x = __import__('helpers')", "", "helpers.py"},
		{"importlib.import_module(\"pkg.util\")", "", "pkg/util.py"},
		{"from pkg import (\n  util)", "", "pkg/util.py"},
		{"import helpers2, my_helpers, überhelpers", "", ""},
		{"import other", "from helpers import f", "helpers.py"},
		{"import other", "import other", ""},
		{"import pkg, helpers", "", "helpers.py pkg/util.py"},
		{`{"cells": [{"source": ["x = 1\n", "import helpers\n"]}]}`, "", "helpers.py"},
	} {
		earlierTree(t, "main.py", "helpers.py", "pkg/util.py", "other.py")
		writeProgram(t, "main.py", c.program)
		writeProgram(t, "other.py", c.other)
		uploaded := map[string]string{"/content/helpers.py": digestOf("old"), "/content/pkg/util.py": digestOf("old"), "/content/other.py": digestOf(c.other)}
		var got []string
		for _, f := range earlierFiles("main.py", uploaded) {
			got = append(got, filepath.ToSlash(f.local))
		}
		if all := strings.Join(got, " "); all != c.want {
			t.Errorf("%q with %q: %q, want %q", c.program, c.other, all, c.want)
		}
	}
	earlierTree(t, "main.py")
	var chain []string
	uploaded := map[string]string{}
	for i := range 300 { // a long chain of imports
		name := fmt.Sprintf("m%d", i)
		chain = append(chain, name)
		writeProgram(t, name+".py", fmt.Sprintf("import m%d", i+1))
		uploaded["/content/"+name+".py"] = digestOf("old")
	}
	writeProgram(t, "main.py", "import m0")
	if found := earlierFiles("main.py", uploaded); len(found) != len(chain) {
		t.Errorf("%d modules of a chain of %d", len(found), len(chain))
	}
	writeProgram(t, "m0.py", "")
	if found := earlierFiles("main.py", uploaded); len(found) != 1 || found[0].local != "m0.py" {
		t.Errorf("an emptied module: %v", found)
	}
}
