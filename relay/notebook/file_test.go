package notebook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"
)

// newFile returns a notebook on disk with cells, and the File that edits it.
func newFile(t *testing.T, sources ...string) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n.ipynb")
	writeFile(t, path, withCells(t, New(), sources...).Bytes())
	return open(t, path)
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := OpenFile(path, filepath.Join(filepath.Dir(path), "locks"))
	must(t, err)
	return f
}

func withCells(t *testing.T, d *Document, sources ...string) *Document {
	t.Helper()
	for _, source := range sources {
		if _, err := d.Insert(-1, NewCell{Type: Code, Source: source}); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	must(t, os.WriteFile(path, text, 0o600))
}

// add is a change that appends a cell.
func add(source string) func(*Document) error {
	return func(d *Document) error {
		_, err := d.Insert(-1, NewCell{Type: Code, Source: source})
		return err
	}
}

// sources returns the sources of the file's cells.
func sources(t *testing.T, path string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	d, err := Parse(text)
	if err != nil {
		t.Fatalf("%v: %.100q", err, text)
	}
	for i := range d.Len() {
		all = append(all, d.Cell(i).Source)
	}
	return all
}

func edit(t *testing.T, f *File, change func(*Document) error) Change {
	t.Helper()
	done, err := f.Edit(t.Context(), "", change)
	must(t, err)
	return done
}

// hidden returns the names of the hidden files beside a notebook.
func hidden(t *testing.T, path string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	must(t, err)
	return found
}

func TestAnEditWritesTheRealFileWithItsMode(t *testing.T) {
	f := newFile(t, "1")
	must(t, os.Chmod(f.Path(), 0o640))
	at := filepath.Join(filepath.Dir(f.Path()), "link.ipynb")
	link(t, "n.ipynb", at)
	linked := open(t, at)
	done := edit(t, linked, add("2"))
	info, err := os.Lstat(at)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	if info, err = os.Stat(f.Path()); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	if got := sources(t, f.Path()); !slices.Equal(got, []string{"1", "2"}) || linked.Path() != f.Path() {
		t.Errorf("%q in %q", got, linked.Path())
	}
	if done.Before.Len() != 1 || done.After.Len() != 2 || len(done.Notes) > 0 || len(hidden(t, f.Path())) > 0 {
		t.Errorf("%+v, %q", done, hidden(t, f.Path()))
	}
}

func TestNothingIsWrittenWithoutAChange(t *testing.T) {
	f := newFile(t, "1")
	before, err := os.Stat(f.Path())
	must(t, err)
	done := edit(t, f, func(*Document) error { return nil })
	broken := errors.New("broken")
	_, err = f.Edit(t.Context(), "", func(d *Document) error { return errors.Join(add("2")(d), broken) })
	cancelled, cancel := context.WithCancel(t.Context())
	_, stopped := f.Edit(cancelled, "", func(d *Document) error { cancel(); return add("2")(d) })
	_, refused := f.Edit(cancelled, "", add("2"))
	after, statErr := os.Stat(f.Path())
	if done.After != done.Before || !errors.Is(err, broken) || statErr != nil || !os.SameFile(before, after) {
		t.Errorf("%+v, %v, %v", done, err, statErr)
	}
	if !errors.Is(stopped, context.Canceled) || !errors.Is(refused, context.Canceled) {
		t.Errorf("%v, %v", stopped, refused)
	}
}

func TestAnEditOfAnotherVersionIsRefused(t *testing.T) {
	f := newFile(t, "1")
	d, err := f.Read()
	must(t, err)
	if _, err := f.Edit(t.Context(), d.Digest(), add("2")); err != nil {
		t.Error(err)
	}
	if _, err := f.Edit(t.Context(), d.Digest(), add("3")); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	if got := sources(t, f.Path()); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("%q", got)
	}
}

// An editor may save twice within one step of the file system's clock, with equal sizes.
func TestReadSeesEditsThatKeepTimeAndSize(t *testing.T) {
	f := newFile(t, "a")
	now := time.Now()
	for _, source := range []string{"b", "c", "c", "d"} {
		text, err := os.ReadFile(f.Path())
		must(t, err)
		at := strings.LastIndex(string(text), `"source"`)
		at += strings.Index(string(text[at:]), "[") + strings.Index(string(text[at+strings.Index(string(text[at:]), "["):]), `"`) + 1
		text[at] = source[0]
		writeFile(t, f.Path(), text)
		must(t, os.Chtimes(f.Path(), now, now))
		if d, err := f.Read(); err != nil || d.Cell(0).Source != source {
			t.Fatalf("%v, want %q", err, source)
		}
	}
}

func TestALockedNotebookIsBusy(t *testing.T) {
	f := newFile(t, "a")
	must(t, os.MkdirAll(filepath.Dir(f.lock), 0o700))
	lock := flock.New(f.lock)
	if got, err := lock.TryLock(); !got || err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if _, err := f.Edit(t.Context(), "", add("b")); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "try again") {
			t.Error(err)
		}
		ctx, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		if _, err := f.Edit(ctx, "", add("b")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	must(t, lock.Unlock())
	edit(t, f, add("b"))
}

func TestANewNotebookReplacesNone(t *testing.T) {
	for _, moment := range []string{"change", "check", "replace"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "new.ipynb")
		f, err := OpenOrNew(path, dir)
		must(t, err)
		once := sync.OnceFunc(func() { writeFile(t, path, withCells(t, New(), "theirs").Bytes()) })
		change := add("ours")
		switch moment {
		case "change":
			change = func(d *Document) error { once(); return add("ours")(d) }
		case "check":
			f.beforeCheck = once
		default:
			f.beforeReplace = once
		}
		edit(t, f, change)
		if got := sources(t, path); !slices.Equal(got, []string{"theirs", "ours"}) {
			t.Errorf("%s: %q", moment, got)
		}
	}
}

// external is another program that edits a notebook without our lock: it reads the file, adds a
// cell at the front, and saves it in place or by a rename.
func external(path, source string, inPlace bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	d, err := Parse(text)
	if err != nil {
		return err
	}
	if _, err := d.Insert(0, NewCell{Type: Code, Source: source}); err != nil {
		return err
	}
	if inPlace {
		return os.WriteFile(path, d.Bytes(), 0o600)
	}
	temp := path + ".external"
	if err := os.WriteFile(temp, d.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// Other programs save the notebook between our read and our write, at each step. Neither their
// changes nor ours may be lost.
func TestEditsOfOtherProgramsSurviveOurs(t *testing.T) {
	f := newFile(t)
	var want []string
	for round := range 16 { // a bit for each step, and one for the way in which they save
		disturb := func(step int) {
			if round>>step&1 == 0 {
				return
			}
			source := fmt.Sprintf("theirs %d.%d.%d", round, step, len(want))
			must(t, external(f.Path(), source, round>>3 == 0))
			want = append(want, source)
		}
		once := [3]func(){}
		for step := range once {
			once[step] = sync.OnceFunc(func() { disturb(step) })
		}
		f.beforeCheck, f.beforeReplace = once[1], once[2]
		source := fmt.Sprintf("ours %d", round)
		done := edit(t, f, func(d *Document) error { once[0](); return add(source)(d) })
		want = append(want, source)
		if noted := round&7 != 0; noted != (len(done.Notes) > 0) {
			t.Fatalf("round %d: notes %q", round, done.Notes)
		}
	}
	got := sources(t, f.Path())
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("%d cells, want %d:\n%q\n%q", len(got), len(want), got, want)
	}
	if left := hidden(t, f.Path()); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// A system that cannot exchange names compares the file right before it replaces it.
func TestASystemWithoutExchangesReplacesTheFile(t *testing.T) {
	f := newFile(t, "1")
	before, err := f.load(t.Context())
	must(t, err)
	temp := filepath.Join(filepath.Dir(f.Path()), "temp")
	writeFile(t, temp, []byte("new"))
	swap := exchangeNames
	exchangeNames = func(string, string) error { return errors.ErrUnsupported }
	defer func() { exchangeNames = swap }()
	must(t, f.exchange(temp, before.info, before))
	if text, err := os.ReadFile(f.Path()); err != nil || !bytes.Equal(text, []byte("new")) {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(temp); err == nil {
		t.Error("the temporary file is left")
	}
}

// tree is a home folder, a folder outside it, and roots.
func tree(t *testing.T) (home, outside string, roots Roots) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	home, outside = filepath.Join(top, "home"), filepath.Join(top, "outside")
	for _, dir := range []string{"home/work", "home/.cache/allowed", "home/.local", "outside/data", "outside/.dirs/.x"} {
		must(t, os.MkdirAll(filepath.Join(top, dir), 0o700))
	}
	return home, outside, Roots{Home: home, Save: filepath.Join(outside, "saved"), Dirs: []string{"~/.cache/allowed", filepath.Join(outside, ".dirs")}, Working: filepath.Join(home, "work")}
}

func link(t *testing.T, to, at string) {
	t.Helper()
	must(t, os.Symlink(to, at))
}

func TestPathsThatToolsMayUse(t *testing.T) {
	home, outside, roots := tree(t)
	link(t, filepath.Join(home, "work"), filepath.Join(outside, "data", "w"))
	for path, want := range map[string]string{
		"a.ipynb":                  filepath.Join(home, "work", "a.ipynb"),
		"sub/./x/../a.IPYNB":       filepath.Join(home, "work", "sub", "a.IPYNB"),
		"~/new/a b.ipynb":          filepath.Join(home, "new", "a b.ipynb"),
		"~/.cache/allowed/a.ipynb": filepath.Join(home, ".cache", "allowed", "a.ipynb"),
		filepath.Join(outside, "saved", "a.ipynb"):  filepath.Join(outside, "saved", "a.ipynb"),
		filepath.Join(outside, ".dirs", "a.ipynb"):  filepath.Join(outside, ".dirs", "a.ipynb"),
		filepath.Join(home, "work", "...ü.x.ipynb"): "has the hidden part",

		"":                 "it is empty",
		"a.py":             "does not end in .ipynb",
		"a.ipynb/b":        "does not end in .ipynb",
		"a\nb.ipynb":       "control characters",
		"~root/a.ipynb":    "no shell replaces",
		".ipynb":           `has the hidden part ".ipynb"`,
		"~/.local/a.ipynb": `has the hidden part ".local"`,
		"../../a.ipynb":    "add the folder to RELAY_NOTEBOOK_DIRS",
		filepath.Join(outside, ".dirs", ".x", "a.ipynb"): "has the hidden part",
		filepath.Join(outside, "data", "a.ipynb"):        "is outside your home folder",
		filepath.Join(outside, "data", "w", "a.ipynb"):   "is outside your home folder", // although it leads home
		filepath.Join(outside, "saved", "..", "b.ipynb"): "is outside your home folder",
	} {
		got, err := roots.Resolve(path)
		if filepath.IsAbs(want) {
			if err != nil || got != want {
				t.Errorf("%q is %q, %v, want %q", path, got, err, want)
			}
		} else if !errors.Is(err, ErrForbiddenPath) || !strings.Contains(err.Error(), want) || got != "" {
			t.Errorf("%q is %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestLinksDoNotLeadOutside(t *testing.T) {
	home, outside, roots := tree(t)
	for name, test := range map[string]struct{ to, want string }{
		"file.ipynb":   {filepath.Join(outside, "data", "a.ipynb"), "outside"},
		"text.ipynb":   {filepath.Join(home, "secrets.txt"), "does not end in .ipynb"},
		"hidden.ipynb": {filepath.Join(home, ".local", "a.ipynb"), "hidden part"},
		"gone.ipynb":   {filepath.Join(home, "missing.ipynb"), "a file that is missing"},
		"loop.ipynb":   {filepath.Join(home, "work", "loop.ipynb"), "cannot be looked up"},
		"good.ipynb":   {filepath.Join(home, "good.ipynb"), ""},
	} {
		if !strings.HasPrefix(name, "gone") && !strings.HasPrefix(name, "loop") {
			must(t, os.WriteFile(test.to, nil, 0o600))
		}
		link(t, test.to, filepath.Join(home, "work", name))
		got, err := roots.Resolve(name)
		if test.want == "" {
			if err != nil || got != test.to {
				t.Errorf("%s is %q, %v", name, got, err)
			}
		} else if !errors.Is(err, ErrForbiddenPath) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	link(t, outside, filepath.Join(home, "work", "folder"))
	if _, err := roots.Resolve("folder/data/new.ipynb"); !errors.Is(err, ErrForbiddenPath) || !strings.Contains(err.Error(), `folder/data/new.ipynb" is a link or inside one`) {
		t.Error(err)
	}
}

func TestAWorkingFolderOutsideTheRootsIsNamed(t *testing.T) {
	_, outside, roots := tree(t)
	for working, want := range map[string]string{"": "working folder is not known", "/": `working folder "/", which is outside`, outside: "RELAY_NOTEBOOK_DIRS"} {
		roots.Working = working
		if _, err := roots.Resolve("a.ipynb"); !errors.Is(err, ErrForbiddenPath) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", working, err)
		}
	}
}
