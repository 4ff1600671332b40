package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"colabrelay/shared/contract"
)

func TestABigFolderIsListedPageByPage(t *testing.T) {
	tr := newTree(t)
	big := filepath.Join(tr.Workdir, "big")
	must(t, os.Mkdir(big, 0o755))
	const count = 2*contract.MaxListFiles + 500
	want := make([]string, 0, count)
	for n := range count - 4 {
		want = append(want, fmt.Sprintf("%x", n*7919))
	}
	want = append(want, "new\nline", "bad\xff\xfename", "ünïcode", "~")
	one := filepath.Join(tr.Workdir, "a.txt")
	for _, name := range want {
		must(t, os.Link(one, filepath.Join(big, name)))
	}
	must(t, os.WriteFile(filepath.Join(big, ".x"+PartSuffix), nil, 0o600))
	for i, name := range want {
		want[i] = contract.EscapeName(name)
	}
	slices.Sort(want)

	var got []string
	for after, more := "", true; more; {
		page, err := tr.roots.List(t.Context(), "big", after)
		must(t, err)
		if page.FileCount != count || page.DirCount != 0 || len(page.Files) == 0 || len(page.Files) > contract.MaxListFiles {
			t.Fatalf("a page after %q has %d of %d files", after, len(page.Files), page.FileCount)
		}
		for _, f := range page.Files {
			got = append(got, f.Name)
		}
		after, more = got[len(got)-1], page.Truncated
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%d names are listed, want %d, in order", len(got), len(want))
	}
	if page, err := tr.roots.List(t.Context(), "big", "\U0010ffff"); err != nil || len(page.Files) != 0 || page.Truncated || page.FileCount != count {
		t.Errorf("after the end: %d of %d files, truncated %v, %v", len(page.Files), page.FileCount, page.Truncated, err)
	}
}
