package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// crowd makes n files in a folder of the workdir.
func (tr tree) crowd(t testing.TB, folder string, n int) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(tr.Workdir, folder), 0o755))
	for i := range n {
		must(t, os.Link(filepath.Join(tr.Workdir, "a.txt"), filepath.Join(tr.Workdir, folder, fmt.Sprintf("f%06d", i))))
	}
}

// enumerate lists a folder page by page; between is called after each page.
func (tr tree) enumerate(t testing.TB, folder string, between func(page int)) []string {
	t.Helper()
	var names []string
	for page, after := 1, ""; ; page++ {
		got, err := tr.roots.List(t.Context(), folder, after)
		must(t, err)
		for _, f := range got.Files {
			names = append(names, f.Name)
		}
		if !got.Truncated {
			return names
		}
		after = names[len(names)-1]
		between(page)
	}
}

func TestABigFolderIsReadOnceForAllItsPages(t *testing.T) {
	tier.Long(t)
	tr := newTree(t)
	const n = 20*contract.MaxListFiles + 1
	tr.crowd(t, "big", n)
	for round := range int64(2) {
		names := tr.enumerate(t, "big", func(int) {
			if kept := &tr.roots.snapshots; kept.bytes <= 0 || kept.bytes > 100*n || len(kept.kept) != 1 {
				t.Fatalf("%d bytes of %d folders are kept", kept.bytes, len(kept.kept))
			}
		})
		if len(names) != n || !slices.IsSorted(names) {
			t.Errorf("%d names, want %d", len(names), n)
		}
		if reads := tr.roots.snapshots.reads.Load(); reads != round+1 {
			t.Errorf("the folder was read %d times in enumeration %d", reads, round+1)
		}
	}
	if kept := &tr.roots.snapshots; kept.bytes != 0 || len(kept.kept) != 0 {
		t.Errorf("after the last page %d bytes of %d folders are kept", kept.bytes, len(kept.kept))
	}
}

// Names that exist throughout appear exactly once, even if others are created and deleted.
func TestAFolderThatChangesBetweenPagesLosesNoName(t *testing.T) {
	tier.Long(t)
	tr := newTree(t)
	const n = 5 * contract.MaxListFiles
	tr.crowd(t, "big", n)
	name := func(i int) string { return filepath.Join(tr.Workdir, "big", fmt.Sprintf("f%06d", i)) }
	gone := map[string]bool{}
	names := tr.enumerate(t, "big", func(page int) {
		for i := page; i < n; i += 97 { // on earlier and on later pages
			if base := filepath.Base(name(i)); !gone[base] {
				gone[base] = true
				must(t, os.Remove(name(i)))
			}
		}
		must(t, os.WriteFile(filepath.Join(tr.Workdir, "big", fmt.Sprintf("a-new-%d", page)), nil, 0o600))
		must(t, os.WriteFile(filepath.Join(tr.Workdir, "big", fmt.Sprintf("z-new-%d", page)), nil, 0o600))
	})
	seen := map[string]int{}
	for _, one := range names {
		seen[one]++
	}
	for i := range n {
		base := fmt.Sprintf("f%06d", i)
		if seen[base] > 1 || seen[base] == 0 && !gone[base] {
			t.Fatalf("%q appears %d times", base, seen[base])
		}
	}
	// A new listing shows the current entries.
	entries, err := os.ReadDir(filepath.Join(tr.Workdir, "big"))
	must(t, err)
	if again := tr.enumerate(t, "big", func(int) {}); len(again) != len(entries) {
		t.Errorf("%d names then, %d files are there", len(again), len(entries))
	}
}

// Pages never come from a snapshot of another folder, or of one that was replaced.
func TestPagesAreOfTheirFolderOnly(t *testing.T) {
	tr := newTree(t)
	const n = 2 * contract.MaxListFiles
	tr.crowd(t, "one", n)
	tr.crowd(t, "two", n)
	for _, folder := range []string{"one", "two"} {
		if _, err := tr.roots.List(t.Context(), folder, ""); err != nil {
			t.Fatal(err)
		}
	}
	must(t, os.Rename(filepath.Join(tr.Workdir, "one"), filepath.Join(tr.Workdir, "old")))
	tr.crowd(t, "one", contract.MaxListFiles+7)
	if page, err := tr.roots.List(t.Context(), "one", fmt.Sprintf("f%06d", contract.MaxListFiles-1)); err != nil || len(page.Files) != 7 || page.Truncated {
		t.Errorf("%d files, truncated %v, %v", len(page.Files), page.Truncated, err)
	}
	if page, err := tr.roots.List(t.Context(), "two", fmt.Sprintf("f%06d", contract.MaxListFiles-1)); err != nil || len(page.Files) != contract.MaxListFiles || page.Truncated {
		t.Errorf("%d files, truncated %v, %v", len(page.Files), page.Truncated, err)
	}
}

// A folder whose snapshot does not fit is read for every page.
func TestSnapshotsAreBounded(t *testing.T) {
	tier.Long(t)
	tr := newTree(t)
	const n = 3*contract.MaxListFiles + 1
	tr.crowd(t, "big", n)
	one := entry{name: "f000000", shown: "f000000"}.bytes()
	for most, reads := range map[int64]int64{n * one: 1, n*one - 1: 4} {
		tr.roots.snapshots.most = most
		tr.roots.snapshots.reads.Store(0)
		names := tr.enumerate(t, "big", func(int) {
			if tr.roots.snapshots.bytes > most {
				t.Fatalf("%d bytes are kept, %d are the most", tr.roots.snapshots.bytes, most)
			}
		})
		if got := tr.roots.snapshots.reads.Load(); len(names) != n || got != reads {
			t.Errorf("bound of %d bytes: %d names, want %d; %d reads, want %d", most, len(names), n, got, reads)
		}
	}
	// If two do not fit, the older one is removed.
	tr.roots.snapshots.most = n * one
	for i, folder := range []string{"big", "second"} {
		if i > 0 {
			tr.crowd(t, folder, n)
		}
		if _, err := tr.roots.List(t.Context(), folder, ""); err != nil {
			t.Fatal(err)
		}
	}
	if kept := &tr.roots.snapshots; len(kept.kept) != 1 || kept.bytes != n*one {
		t.Errorf("%d bytes of %d folders are kept", kept.bytes, len(kept.kept))
	}
}
