package files

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/cli"
	"colabrelay/relay/client"
	"colabrelay/relay/progress"
	"colabrelay/relay/transfer"
	"colabrelay/shared/e2e/fakevm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestThePlaceOfAnUploadIsNeverGuessed(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
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
		"a.py":              {"a.py", "", ""},
		"in/":               {"in/", "", ""},
		"a.py b.py":         {"a.py b.py", "", ""},
		"a.py c":            {"a.py c", "", ""},
		"a.py new.py":       {"a.py", "new.py", ""},
		"a.py new/":         {"a.py", "new/", ""},
		"a.py /content/x":   {"a.py", "/content/x", ""},
		"in new":            {"in", "new", ""},
		"a.py b.py new/":    {"a.py b.py", "new/", ""},
		"a.py b.py /nowhre": {"a.py b.py", "/nowhre/", ""},
		"a.py b.py in":      {"a.py b.py in", "", ""},
		"a.py b.py new":     {"", "", "write `--to new`"},
		"a.py in/":          {"", "", "write `--to in/`"},
		"a.py " + here:      {"", "", "may also name a folder on the VM"},
		"a.py b.py " + here: {"", "", "may also name a folder on the VM"},
		"a.py in/a.py":      {"", "", `would both be uploaded as "a.py"`},
		"a.py ./a.py":       {"", "", `would both be uploaded as "a.py"`},
		"a.py in/a.py new/": {"", "", `would both be uploaded as "a.py"`},
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

func TestABackslashSeparatesFoldersOnWindowsOnly(t *testing.T) {
	for _, c := range []struct{ typed, system, want string }{
		{`a\b.txt`, "windows", "a/b.txt"}, {`\content\x\`, "windows", "/content/x/"}, {`a/b\c`, "windows", "a/b/c"},
		{`a\b.txt`, "linux", `a\b.txt`}, {`a\b.txt`, "darwin", `a\b.txt`}, {"", "windows", ""},
		{`\content\a\xe2\x80\x8bb\x.txt`, "windows", `/content/a\xe2\x80\x8bb/x.txt`}, {`a\x41\xFF\x5c`, "windows", `a/x41/xFF\x5c`},
	} {
		if got := transfer.RemotePath(c.typed, c.system); got != c.want {
			t.Errorf("%q on %s: %q, want %q", c.typed, c.system, got, c.want)
		}
	}
}

func TestLocalTarget(t *testing.T) {
	for local, want := range map[string]transfer.Local{
		"":         {Dir: "."},
		".":        {Dir: "."},
		"..":       {Dir: ".."},
		"../..":    {Dir: "../.."},
		"/":        {Dir: "/"},
		"a":        {Dir: ".", Name: "a"},
		"a/":       {Dir: "a"},
		"a/b":      {Dir: "a", Name: "b"},
		"/a":       {Dir: "/", Name: "a"},
		"../a":     {Dir: "..", Name: "a"},
		"a/../b":   {Dir: ".", Name: "b"},
		"-weird  ": {Dir: ".", Name: "-weird  "},
	} {
		if got := localTarget(local); got != want {
			t.Errorf("%q: %+v, want %+v", local, got, want)
		}
	}
}

func TestTheProgressLineSaysWhyItWaits(t *testing.T) {
	vm := fakevm.Start(t)
	var newest lastAttempt
	c, err := client.New(client.Config{BaseURL: vm.URL, Secret: vm.Secret, OnAttempt: newest.record})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, _ = c.Kernel(ctx)
	}
	vm.On(func(context.Context, *http.Request) error { return fakevm.ErrGone })
	request()
	var meter progress.Meter
	meter.Report(transfer.Progress{Stage: transfer.StageMoving, Done: 37, Total: 100})
	_, at := meter.Last()
	if got := cli.ProgressLine(&meter, newest.failure(), at.Add(3*time.Second)); !strings.HasPrefix(got, "37% of 100 B, waiting for the VM: unreachable: ") {
		t.Errorf("during the outage: %q", got)
	}
	if got := cli.ProgressLine(&meter, newest.failure(), at.Add(time.Second)); strings.Contains(got, "waiting") {
		t.Errorf("shortly after the last progress: %q", got)
	}
	vm.On(func(context.Context, *http.Request) error { return nil })
	request()
	if got := cli.ProgressLine(&meter, newest.failure(), at.Add(3*time.Second)); strings.Contains(got, "waiting") {
		t.Errorf("after the outage: %q", got)
	}
}
