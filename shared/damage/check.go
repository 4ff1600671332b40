package damage

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// check is the test of one file.
type check struct {
	Files
	dir, intact string
	name        string // of the file, below dir
	want        string // what Use finds in an intact folder
	count       int    // of kinds that were tested
}

// one tests one kind of damage.
func (c *check) one(t *testing.T, k kind, good []byte) {
	mustDo(t, os.RemoveAll(c.dir))
	mustDo(t, os.CopyFS(c.dir, os.DirFS(c.intact)))
	path := filepath.Join(c.dir, c.name)
	mustDo(t, k.do(path, good))
	damaged := look(path)
	if intact := look(filepath.Join(c.intact, c.name)); damaged.info != nil && damaged.equal(intact) && intact.equal(damaged) {
		return // the file has so many zeros
	}
	found, said, allocated := c.use(t, k)
	c.count++
	if most := max(c.MaxAlloc, DefaultMaxAlloc); allocated > most {
		t.Errorf("%s: reading allocated %d MiB, want at most %d", k.name, allocated>>20, most>>20)
	}
	torn := strings.HasPrefix(k.name, cutName) && matches(c.Lines, c.name)
	if !torn && !c.isReported(k, damaged, found, said) {
		t.Errorf("%s: nothing names the file\nfound: %s\nwant:  %s\nsaid:  %s", k.name, found, c.want, said)
	}
	understood := found == c.want && matches(c.Rewritten, c.name) // and written anew
	if !torn && !understood && !damaged.isEmpty() && !matches(c.Worthless, c.name) && !damaged.isIn(t, c.dir) {
		t.Errorf("%s: what was in place of the file is gone\nsaid: %s", k.name, said)
	}
	c.checkOthers(t, k)
}

// isReported says whether Use found what it should, or said that it did not.
func (c *check) isReported(k kind, damaged thing, found, said string) bool {
	return found == c.want || damaged.isMissing() || matches(c.Worthless, c.name) ||
		strings.Contains(said, filepath.Base(c.name)) || c.Harmless != nil && c.Harmless(c.name, k.name, found)
}

// use calls Use and fails when it takes too long.
func (c *check) use(t *testing.T, k kind) (found, said string, allocated uint64) {
	ended := make(chan struct{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() {
		defer close(ended)
		found, said = c.Use(t, c.dir)
	}()
	select {
	case <-ended:
	case <-time.After(limit):
		stacks := make([]byte, 1<<20)
		t.Fatalf("%s: it hangs:\n%s", k.name, stacks[:runtime.Stack(stacks, true)])
	}
	if t.Failed() {
		t.Fatalf("%s: see above", k.name)
	}
	runtime.ReadMemStats(&after)
	return found, said, after.TotalAlloc - before.TotalAlloc
}

// checkOthers checks that the other files are there with their content. The program may
// append to them, and rename a folder in which one is damaged.
func (c *check) checkOthers(t *testing.T, k kind) {
	mustDo(t, fs.WalkDir(os.DirFS(c.intact), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || name == c.name || matches(c.Rewritten, name) {
			return err
		}
		want := look(filepath.Join(c.intact, name))
		if got := look(filepath.Join(c.dir, name)); got.info != nil && want.equal(got) || want.isIn(t, c.dir) {
			return nil
		}
		t.Errorf("%s: the content of the other file %q is gone", k.name, name)
		return nil
	}))
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := filepath.Match(p, name); return ok })
}

// thing is what has the name of a file.
type thing struct {
	info    fs.FileInfo // nil if there is nothing
	target  string      // of a link
	dangles bool        // it is a link to nothing
	text    []byte      // the first bytes of a file
}

// look returns what is at path.
func look(path string) (it thing) {
	it.info, _ = os.Lstat(path)
	switch {
	case it.info == nil:
	case it.info.Mode()&fs.ModeSymlink != 0:
		it.target, _ = os.Readlink(path)
		_, err := os.Stat(path)
		it.dangles = errors.Is(err, fs.ErrNotExist)
	case it.info.Mode().IsRegular():
		if f, err := os.Open(path); err == nil {
			it.text, _ = io.ReadAll(io.LimitReader(f, 64<<10))
			f.Close()
		}
	}
	return it
}

// isMissing reports whether the file is not there: a link to nothing counts as nothing.
func (it thing) isMissing() bool { return it.info == nil || it.dangles }

// isEmpty reports whether nothing can be lost.
func (it thing) isEmpty() bool {
	return it.isMissing() || it.info.Mode().IsRegular() && len(it.text) == 0
}

// isIn reports whether an equal thing is in dir or below, under any name.
func (it thing) isIn(t *testing.T, dir string) bool {
	found := false
	if it.info.Mode().IsRegular() && len(it.text) == 0 {
		return true
	}
	mustDo(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		found = found || err == nil && it.equal(look(path))
		return err
	}))
	return found
}

// equal reports whether another thing is the same, or a file that begins with its content.
func (it thing) equal(other thing) bool {
	switch {
	case it.info.Mode().Type() != other.info.Mode().Type():
		return false
	case it.info.Mode().IsRegular():
		return other.info.Size() >= it.info.Size() && bytes.HasPrefix(other.text, it.text)
	}
	return os.SameFile(it.info, other.info) || it.target != "" && it.target == other.target
}
