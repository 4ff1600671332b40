// Package damage tests what a program does with files that are damaged: cut, overwritten or
// replaced by something else. It is for tests only and must not depend on what they test.
//
// Start reading at Files.Test; kinds.go lists the kinds of damage, check.go what must hold.
package damage

import (
	"cmp"
	"math/rand/v2"
	"os"
	"path/filepath"
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
