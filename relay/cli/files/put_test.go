package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/relay/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestThePlaceOfAnUploadIsNeverGuessed(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("USERPROFILE", dir)
	for _, name := range []string{"a.py", "b.py", "in/a.py", "c"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here := dir + "/c"
	for line, want := range map[string]struct {
		sources, remote, refused string
	}{
		"a.py b.py":       {"a.py b.py", "", ""},
		"a.py new.py":     {"a.py", "new.py", ""},
		"a.py b.py new":   {"", "", "write `--to new`"},
		"a.py in/":        {"", "", "write `--to in/`"},
		"a.py ~/x.py":     {"a.py", "~/x.py", ""},
		"a.py b.py ~/x":   {"a.py b.py", "~/x/", ""},
		"a.py $HOME/x.py": {"", "", "no shell replaces"},
		"~/a.py":          {dir + "/a.py", "", ""},
		"a.py " + here:    {"", "", "may also name a folder on the VM"},
		"a.py in/a.py":    {"", "", `would both be uploaded as "a.py"`},
	} {
		sources, remote, err := putArguments(strings.Fields(line), "", false)
		switch {
		case want.refused != "":
			if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), want.refused) {
				t.Errorf("%q: %q, %q, %v", line, sources, remote, err)
			}
		case err != nil || !slices.Equal(sources, strings.Fields(want.sources)) || remote != want.remote:
			t.Errorf("%q: %q, %q, %v", line, sources, remote, err)
		}
	}
	for to, want := range map[string]string{"x": "x/", "/content/x/": "/content/x/", "/": "/", "in": "in/"} {
		sources, remote, err := putArguments([]string{"a.py", "new/", here}, to, true)
		if err != nil || len(sources) != 3 || remote != want {
			t.Errorf("--to %q: %q, %q, %v", to, sources, remote, err)
		}
	}
	for _, args := range [][]string{{""}, {"a.py", ""}} {
		if _, _, err := putArguments(args, "", false); err == nil || !strings.Contains(err.Error(), "LOCAL is empty") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if _, _, err := putArguments([]string{"a.py"}, "", true); err == nil {
		t.Error("an empty --to is accepted")
	}
}
