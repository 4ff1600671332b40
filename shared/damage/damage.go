// Package damage tests what a program does with files that are damaged: cut, overwritten or
// replaced by something else. It is for tests only and must not depend on what they test.
//
// Start reading at Files.Test.
package damage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"colabrelay/shared/memorydir"
)

// Files is a folder of files that a program keeps, and how the program uses it.
type Files struct {
	// Make writes intact files into an empty folder.
	Make func(t testing.TB, dir string)
	// Use does what the program does with the folder when it starts and works, at most once
	// for each call of Make or of a damage. It returns what it found there, in any words, and
	// everything that it reported: errors, warnings and logs.
	Use func(t testing.TB, dir string) (found, said string)
	// Damage names the files to be damaged, one after the other, by patterns of
	// filepath.Match below the folder. Each matches at least one file.
	Damage []string
	// Rewritten names files that Use changes or deletes although they are intact, such as
	// locks and logs, by patterns. One from which Use found all may be replaced.
	Rewritten []string
	// Worthless names files whose content may be lost without a word, such as hints, by
	// patterns. Only the program and the other files must survive their damage.
	Worthless []string
	// Harmless reports whether what Use found is right although nothing was said, such as a gap
	// in a log, or whether no program could detect that kind of damage. Nil means never.
	Harmless func(file, kind, found string) bool
	// Lines names files to which lines are appended, by patterns. A kill tears the last line, so
	// what a cut leaves of it may be dropped without a word.
	Lines []string
	// MaxAlloc bounds the memory that Use may allocate in bytes; 0 means DefaultMaxAlloc.
	MaxAlloc uint64
	// Cuts bounds at how many bytes each file is cut: 0 means DefaultCuts.
	Cuts int
}

// DefaultMaxAlloc is 64 MiB. It is less than the size of the largest damaged files.
const DefaultMaxAlloc = 64 << 20

// DefaultCuts is at how many bytes a file is cut. A file of fewer bytes is cut at every byte.
const DefaultCuts = 1000

// limit is how long one use may take before the test says that it hangs. It is long because
// other tests load the machine.
const limit = 2 * time.Minute

// Test damages each file in every way, and checks that the program survives that: it does not
// hang, crash or read without bound, it finds what an intact folder has or says which file is
// damaged, and what it does not understand and the other files are still there afterwards.
func (f Files) Test(t *testing.T) {
	temp := memorydir.New(t)
	dir, intact := filepath.Join(temp, "folder"), filepath.Join(temp, "intact")
	mustDo(t, os.Mkdir(dir, 0o700))
	f.Make(t, dir)
	mustDo(t, os.CopyFS(intact, os.DirFS(dir)))
	want, _ := f.Use(t, dir)
	for _, pattern := range f.Damage {
		found, err := filepath.Glob(filepath.Join(intact, pattern))
		mustDo(t, err)
		if len(found) == 0 {
			t.Errorf("Make writes no file %q", pattern)
		}
		for _, path := range found {
			name, err := filepath.Rel(intact, path)
			mustDo(t, err)
			t.Run(name, func(t *testing.T) { c := &check{f, dir, intact, name, want, 0}; c.allKinds(t) })
		}
	}
}

// allKinds damages one file in every way.
func (c *check) allKinds(t *testing.T) {
	good, err := os.ReadFile(filepath.Join(c.intact, c.name))
	mustDo(t, err)
	for _, k := range append(kinds(), cuts(len(good), cmp.Or(c.Cuts, DefaultCuts))...) {
		c.one(t, k, good)
		if t.Failed() {
			return // the first one says enough
		}
	}
	t.Logf("%d kinds of damage", c.count)
}

// cuts returns a cut at every byte of a file of size bytes, or most of them: the first ones
// and the last, and others chosen by a fixed seed.
func cuts(size, most int) []kind {
	var all []kind
	if most >= size {
		for at := range size {
			all = append(all, cut(at))
		}
		return all
	}
	random := rand.New(rand.NewPCG(1, uint64(size)))
	all = append(all, cut(0), cut(1), cut(size-1))
	for range most - 3 {
		all = append(all, cut(random.IntN(size)))
	}
	return all
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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

// huge is the size of the largest damaged files. They take no space on the disk.
const huge = 100 << 20

// kind is one kind of damage. do damages the file at path, which had the content good.
type kind struct {
	name string
	do   func(path string, good []byte) error
}

// contents of other files, by the kind of file.
var contents = map[string]string{
	"an empty object":       "{}",
	"an empty array":        "[]",
	"null":                  "null\n",
	"a text":                `"text"`,
	"a number":              "7\n",
	"a later version":       `{"version": 99999, "schema": 99999}`,
	"wrong types":           `{"version": "x", "schema": [], "pid": {}, "data": 5, "operation": [], "runtimes": [1], "vms": "x"}` + "\n",
	"deep nesting":          strings.Repeat("[", 200_000),
	"lines of empty":        strings.Repeat("{}\n", 1000),
	"empty lines":           strings.Repeat("\n", 1000),
	"a picture":             "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
	"UTF-16":                "\xff\xfe{\x00}\x00",
	"the page of a network": "<!DOCTYPE html><html><body>Sign in</body></html>",
}

// kinds returns all kinds of damage, except cuts.
func kinds() []kind {
	all := []kind{
		{"nothing is there", func(path string, _ []byte) error { return os.Remove(path) }},
		{"zeros", func(path string, good []byte) error { return os.WriteFile(path, make([]byte, len(good)), 0o600) }},
		{"zeros from the middle on", func(path string, good []byte) error {
			return os.WriteFile(path, append(good[:len(good)/2:len(good)/2], make([]byte, len(good)-len(good)/2)...), 0o600)
		}},
		{"noise from the middle on", func(path string, good []byte) error {
			return os.WriteFile(path, append(good[:len(good)/2:len(good)/2], noise(2, len(good)-len(good)/2)...), 0o600)
		}},
		{"noise, then 100 MiB of zeros", func(path string, _ []byte) error { return grown(path, noise(3, 1000)) }},
		{"its content, then 100 MiB of zeros", grown},
		{"a folder", func(path string, _ []byte) error {
			return replaced(path, func() error { return os.Mkdir(path, 0o700) })
		}},
		{"a folder with a file", func(path string, _ []byte) error {
			return replaced(path, func() error { return mkdirWithFile(path) })
		}},
		{"a pipe", func(path string, _ []byte) error {
			return replaced(path, func() error { return syscall.Mkfifo(path, 0o600) })
		}},
		{"a link to nothing", func(path string, _ []byte) error { return linked(path, "missing") }},
		{"a link to itself", func(path string, _ []byte) error { return linked(path, filepath.Base(path)) }},
		{"a link to a device without end", func(path string, _ []byte) error { return linked(path, "/dev/zero") }},
		{"a link to a folder", func(path string, _ []byte) error { return linked(path, ".") }},
	}
	for n := range uint64(3) {
		all = append(all, kind{fmt.Sprintf("noise %d", n), func(path string, good []byte) error {
			return os.WriteFile(path, noise(n, max(len(good), 40)), 0o600)
		}})
	}
	for name, content := range contents {
		all = append(all, kind{name, func(path string, _ []byte) error { return os.WriteFile(path, []byte(content), 0o600) }})
	}
	return all
}

// cutName begins the names of cuts.
const cutName = "a cut at byte "

func cut(at int) kind {
	return kind{fmt.Sprint(cutName, at), func(path string, _ []byte) error { return os.Truncate(path, int64(at)) }}
}

// noise returns random bytes without newlines for an even seed, with some for an odd one.
func noise(seed uint64, n int) []byte {
	random := rand.New(rand.NewPCG(seed, 0))
	text := make([]byte, n)
	for i := range text {
		text[i] = byte(random.Uint32())
		switch {
		case seed%2 == 0 && text[i] == '\n':
			text[i] = 0
		case seed%2 == 1 && random.IntN(10) == 0:
			text[i] = '\n'
		}
	}
	return text
}

func grown(path string, beginning []byte) error {
	if err := os.WriteFile(path, beginning, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, int64(len(beginning))+huge)
}

func replaced(path string, by func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return by()
}

func linked(path, to string) error {
	return replaced(path, func() error { return os.Symlink(to, path) })
}

func mkdirWithFile(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(path, "of a user"), []byte("kept"), 0o600)
}
