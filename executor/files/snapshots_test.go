package files

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
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

// Names that exist throughout appear exactly once, even if others are created and deleted.
func TestAFolderThatChangesBetweenPagesLosesNoName(t *testing.T) {
	tr := newTree(t)
	const n = 3 * contract.MaxListFiles
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
