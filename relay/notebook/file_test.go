package notebook

import (
	"context"
	"errors"
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// hidden returns the names of the hidden files beside a notebook.
func hidden(t *testing.T, path string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAnEditWritesTheRealFileWithItsMode(t *testing.T) {
	f := newFile(t, "1")
	if err := os.Chmod(f.Path(), 0o640); err != nil {
		t.Fatal(err)
	}
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
	if !done.Written || done.Before.Len() != 1 || done.After.Len() != 2 || len(done.Notes) > 0 || len(hidden(t, f.Path())) > 0 {
		t.Errorf("%+v, %q", done, hidden(t, f.Path()))
	}
}

func TestNothingIsWrittenWithoutAChange(t *testing.T) {
	f := newFile(t, "1")
	before, err := os.Stat(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	done := edit(t, f, func(*Document) error { return nil })
	broken := errors.New("broken")
	_, err = f.Edit(t.Context(), "", func(d *Document) error { return errors.Join(add("2")(d), broken) })
	cancelled, cancel := context.WithCancel(t.Context())
	_, stopped := f.Edit(cancelled, "", func(d *Document) error { cancel(); return add("2")(d) })
	_, refused := f.Edit(cancelled, "", add("2"))
	after, statErr := os.Stat(f.Path())
	if done.Written || done.After != done.Before || !errors.Is(err, broken) || statErr != nil || !os.SameFile(before, after) {
		t.Errorf("%+v, %v, %v", done, err, statErr)
	}
	if !errors.Is(stopped, context.Canceled) || !errors.Is(refused, context.Canceled) {
		t.Errorf("%v, %v", stopped, refused)
	}
}

func TestAnEditOfAnotherVersionIsRefused(t *testing.T) {
	f := newFile(t, "1")
	d, err := f.Read()
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		at := strings.LastIndex(string(text), `"source"`)
		at += strings.Index(string(text[at:]), "[") + strings.Index(string(text[at+strings.Index(string(text[at:]), "["):]), `"`) + 1
		text[at] = source[0]
		writeFile(t, f.Path(), text)
		if err := os.Chtimes(f.Path(), now, now); err != nil {
			t.Fatal(err)
		}
		if d, err := f.Read(); err != nil || d.Cell(0).Source != source {
			t.Fatalf("%v, want %q", err, source)
		}
	}
}

func TestALockedNotebookIsBusy(t *testing.T) {
	f := newFile(t, "a")
	if err := os.MkdirAll(filepath.Dir(f.lock), 0o700); err != nil {
		t.Fatal(err)
	}
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
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	edit(t, f, add("b"))
}

func TestANewNotebookReplacesNone(t *testing.T) {
	for _, moment := range []string{"change", "check", "replace"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "new.ipynb")
		f, err := OpenOrNew(path, dir)
		if err != nil {
			t.Fatal(err)
		}
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
