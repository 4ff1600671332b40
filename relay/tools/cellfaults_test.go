package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/shared/bounded"
	"colabrelay/shared/tier"
)

func TestEachErrorOfANotebookHasItsCodeAndANextStep(t *testing.T) {
	c := &call{Relay: New(Config{})}
	for _, test := range []struct {
		err        error
		code, hint string
	}{
		{notebook.ErrNotNotebook, "notebook_damaged", "intact copy"},
		{notebook.ErrOldFormat, "not_supported", "Jupyter or Colab"},
		{notebook.ErrCellChanged, "changed", "get_cells"},
		{notebook.ErrNoIndex, "bad_request", "count from 0"},
		{notebook.ErrChanged, "changed", "new digest"},
		{notebook.ErrBusy, "busy", "Wait some seconds"},
		{notebook.ErrRestless, "busy", "close it there"},
		{notebook.ErrForbiddenPath, "forbidden_path", "RELAY_NOTEBOOK_DIRS"},
		{&notebook.NoCellError{Handle: "x", Nearest: []string{"y", "z"}}, "not_found", `"y" and "z"`},
		{&notebook.NoCellError{Handle: "x"}, "not_found", "get_cells"},
		{bounded.TooLong(notebook.MaxBytes), "too_large", "Split"},
		{nbrun.ErrBusy, "busy", "same arguments"},
		{nbrun.ErrSpec, "bad_request", "Correct the arguments"},
		{nbrun.ErrConflict, "conflict", "interrupt_execution"},
		{nbrun.ErrDamaged, "checkpoint_damaged", "never run"},
		{nbrun.ErrNotPython, "not_supported", "Only Python"},
		{nbrun.ErrOutputPath, "conflict", "output_path"},
		{fs.ErrNotExist, "not_found", "notebook_path"},
		{fs.ErrPermission, "local_file", "permissions"},
		{&fs.PathError{Op: "read", Path: "/x", Err: syscall.EIO}, "local_file", "notebook_path"},
		{&fs.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}, "local_disk_full", "Free disk space"},
		{errors.New("other"), "internal", "Call again"},
	} {
		p := c.notebookProblem(fmt.Errorf("reading: %w", test.err))
		if p.Code != test.code || p.Message == "" || !strings.Contains(p.Hint, test.hint) {
			t.Errorf("%v: %+v", test.err, p)
		}
	}
}

// wants checks the code and the next step of a call that must fail.
func (d desk) wants(code, hint, tool string, arguments object) {
	d.t.Helper()
	r := d.call(tool, arguments)
	if p := r.outcome(d.t).Error; p == nil || p.Code != code || !strings.Contains(p.Message+" "+p.Hint, hint) {
		d.t.Errorf("%s: %.600s, want %s with %q", tool, r.Structured, code, hint)
	}
	if r.bytes > 20_000 {
		d.t.Errorf("%s: a refusal of %d bytes", tool, r.bytes)
	}
}

func TestCallsAboutNotebooksThatCannotWork(t *testing.T) {
	tier.Long(t)
	d := newDesk(t)
	d.put("n.ipynb", 5, codeCell("load_data", "x = 1\nx = 1"), textCell("b", "t"))
	before := d.read("n.ipynb")
	for name, text := range map[string]string{
		"broken.ipynb": `{"cells": [`, "old.ipynb": `{"nbformat": 3, "nbformat_minor": 0, "worksheets": [], "metadata": {}}`,
		"r.ipynb": `{"cells": [` + codeCell("a", "1") + `], "metadata": {"language_info": {"name": "R"}}, "nbformat": 4, "nbformat_minor": 5}`,
	} {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	huge := strings.Repeat("x", notebook.MaxSourceBytes+1)
	for _, test := range []struct {
		code, hint, tool string
		args             object
	}{
		{"bad_request", "Give the path of an .ipynb file", "get_cells", object{}},
		{"bad_request", "browser", "delete_cell", object{"cellId": "b"}},
		{"not_found", "load_data", "get_cells", args("cellId", "load")},
		{"not_found", "load_data", "update_cell", args("cellId", "loaddata", "content", "")},
		{"not_found", "get_cells", "move_cell", args("cellId", "zzz", "cellIndex", 0)},
		{"not_found", "add_code_cell", "get_cells", args("notebook_path", "none.ipynb")},
		{"not_found", "folder that exists", "add_code_cell", args("notebook_path", "none/n.ipynb", "code", "1")},
		{"bad_request", "occurs more than once", "update_cell", args("cellId", "load_data", "find", "x = 1", "content", "")},
		{"bad_request", "does not occur", "update_cell", args("cellId", "load_data", "find", "x  = 1", "content", "")},
		{"bad_request", "code, markdown, raw", "update_cell", args("cellId", "load_data", "content", "", "cell_type", "sql")},
		{"bad_request", "both given", "add_code_cell", args("code", "1", "cellIndex", 0, "afterCellId", "b")},
		{"bad_request", "from 0 to 2, or -1", "add_text_cell", args("content", "1", "cellIndex", 3)},
		{"bad_request", "from 0 to 1, or -1", "move_cell", args("cellId", "b", "cellIndex", 2)},
		{"bad_request", "at least -1", "move_cell", args("cellId", "b", "cellIndex", -2)},
		{"bad_request", "whole number", "move_cell", args("cellId", "b", "cellIndex", 1e300)},
		{"bad_request", "must not be empty", "delete_cell", args("cellId", "")},
		{"bad_request", "at most 200 bytes", "delete_cell", args("cellId", strings.Repeat("i", 1<<20))},
		{"bad_request", "at most 500 bytes", "get_cells", args("query", strings.Repeat("q", 1<<20))},
		{"changed", "digest", "add_code_cell", args("code", "1", "expect_digest", "abc")},
		{"changed", "digest", "delete_cell", args("cellId", "b", "expect_digest", strings.Repeat("0", 64), "dry_run", true)},
		{"too_large", "4 MiB", "add_code_cell", args("code", huge)},
		{"too_large", "4 MiB", "update_cell", args("cellId", "b", "content", huge)},
		{"not_supported", "the notebook's language is R", "add_code_cell", args("notebook_path", "r.ipynb", "code", "1")},
		{"not_supported", "not sql", "add_code_cell", args("code", "1", "language", "sql")},
		{"not_supported", "Jupyter or Colab", "get_cells", args("notebook_path", "old.ipynb")},
		{"notebook_damaged", "intact copy", "update_cell", args("notebook_path", "broken.ipynb", "cellId", "a", "content", "")},
		{"forbidden_path", "RELAY_NOTEBOOK_DIRS", "get_cells", args("notebook_path", "/etc/passwd")},
	} {
		d.wants(test.code, test.hint, test.tool, test.args)
	}
	if d.read("n.ipynb") != before {
		t.Error("a refused call changed the notebook")
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestPathsLeadNowhereElse(t *testing.T) {
	tier.Long(t)
	d := newDesk(t)
	other := t.TempDir()
	secret := filepath.Join(other, "secret.ipynb")
	if err := os.WriteFile(secret, []byte(`{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link.ipynb": secret, "folder": other} {
		if err := os.Symlink(target, filepath.Join(d.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{
		secret, "../" + filepath.Base(other) + "/secret.ipynb", "link.ipynb", "folder/secret.ipynb", "folder/new.ipynb", ".hidden/n.ipynb", ".n.ipynb",
		"n.py", "n.ipynb/", "n.ipynb\x00.py", "a\nb.ipynb", "~/n.ipynb", "~root/n.ipynb", strings.Repeat("a/", 2000) + "n.ipynb", "/dev/stdin", "//host/share/n.ipynb", " ", "%2e%2e/n.ipynb\u202e",
	} {
		for _, tool := range []string{"get_cells", "add_text_cell"} {
			a := args("notebook_path", path)
			if tool == "add_text_cell" {
				a["content"] = "x"
			}
			r := d.call(tool, a)
			if p := r.outcome(t).Error; p == nil || p.Code != "forbidden_path" && p.Code != "bad_request" && p.Code != "not_found" {
				t.Errorf("%s %q: %s", tool, path, r.Structured)
			}
		}
	}
	text, err := os.ReadFile(secret)
	if err != nil || strings.Contains(string(text), "markdown") {
		t.Errorf("%s %v", text, err)
	}
	if entries, err := os.ReadDir(other); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

// A model's control characters, half surrogates and line ends stay in the file, and the answers
// are plain.
func TestSourcesOfAnyKindAreKept(t *testing.T) {
	d := newDesk(t)
	for _, source := range []string{"a\x00b\x1b[31mc", "a\r\nb\rc", "\u2028x\u0085", "\u202eabc", "\ufffd", "</script>&", strings.Repeat("\t\n", 1000), "😀\ud7ff"} {
		d.put("n.ipynb", 5)
		added := decode[AddedCell](t, d.call("add_code_cell", args("code", source)).Structured)
		text := d.read("n.ipynb")
		doc, err := notebook.Parse([]byte(text))
		if err != nil || doc.Len() != 1 || doc.Cell(0).Source != source {
			t.Errorf("%q: %v %s", source, err, text)
		}
		r := d.call("get_cells", args("cellId", added.NewCellID))
		if got := r.Content[0].Text; strings.ContainsAny(got, "\x00\x1b\r\u202e") {
			t.Errorf("%q: %q", source, got)
		}
		if done := decode[DeletedCell](t, d.call("delete_cell", args("cellId", added.NewCellID)).Structured); done.CellCount != 0 {
			t.Errorf("%q: %+v", source, done)
		}
	}
}

func TestAFolderIsNoNotebook(t *testing.T) {
	d := newDesk(t)
	if err := os.Mkdir(filepath.Join(d.dir, "folder.ipynb"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.wants("notebook_damaged", "no regular file", "get_cells", args("notebook_path", "folder.ipynb"))
}

// Another relay that holds the lock makes an edit wait, and then refuse.
func TestANotebookThatAnotherRelayWrites(t *testing.T) {
	tier.Long(t)
	d := newDeskFor(t, time.Second)
	d.put("n.ipynb", 5, codeCell("a", "1"))
	d.call("update_cell", args("cellId", "a", "content", "2")) // which creates the lock
	locks, err := filepath.Glob(filepath.Join(d.locks, "notebook-*.lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("%v %v", locks, err)
	}
	lock := flock.New(locks[0])
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	d.wants("busy", "Wait some seconds", "update_cell", args("cellId", "a", "content", "3"))
	if got := d.cells().Cells[0].Source; got != "2" { // reading needs no lock
		t.Errorf("source %q", got)
	}
}

func TestSkippedAndTimedOutCellsSayWhy(t *testing.T) {
	t.Parallel()
	plan := []nbrun.CellRecord{
		{Handle: "a", Index: 1, Status: nbrun.CellTimedOut, Attempts: []nbrun.Attempt{{Seconds: 3, Error: &nbrun.Failure{EName: "KeyboardInterrupt"}}}},
		{Handle: "b", Index: 2, Status: nbrun.CellSkipped, SkippedBecause: []nbrun.Because{{Cell: "a", Names: []string{"x"}}}},
	}
	if got := failedCell(plan[0]).Error; got != "interrupted after 3 s, its deadline" {
		t.Errorf("%q", got)
	}
	want := "cell 2 (id b) skipped: it uses x, which the cell with id a would have made"
	if got := skipped(plan, nbrun.StatusFailed); !slices.Equal(got, []string{want}) {
		t.Errorf("%q", got)
	}
	if got := skipped(plan, nbrun.StatusPlanned); got != nil {
		t.Errorf("a dry run: %q", got)
	}
	many := slices.Repeat(plan[1:], maxSkipped+1)
	if got := skipped(many, nbrun.StatusFailed); len(got) != maxSkipped {
		t.Errorf("%d cells", len(got))
	}
	var b words
	(&NotebookRun{Skipped: []string{want}}).text(&b)
	if !strings.Contains(b.String(), "\n"+want+"\n") {
		t.Errorf("%q", b.String())
	}
}
