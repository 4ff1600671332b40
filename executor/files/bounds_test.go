package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

func TestALongPathIsRefusedPastItsBound(t *testing.T) {
	tr := newTree(t)
	for over, want := range []error{nil, ErrBadPath} {
		path := strings.Repeat("./", (maxPath-5)/2) + strings.Repeat("/", (maxPath-5)%2+over) + "a.txt"
		if _, err := tr.roots.resolve(path); len(path) != maxPath+over || !errors.Is(err, want) {
			t.Errorf("a path of %d bytes: %v, want %v", len(path), err, want)
		}
	}
}

func TestAChainOfLinksIsRefusedPastItsBound(t *testing.T) {
	tr := newTree(t)
	to := "a.txt"
	for n := range maxLinks + 1 {
		name := fmt.Sprint("link-", n+1)
		must(t, os.Symlink(to, filepath.Join(tr.Workdir, name)))
		to = name
	}
	for over, want := range []error{nil, ErrBadPath} {
		if _, err := tr.roots.resolve(fmt.Sprint("link-", maxLinks+over)); !errors.Is(err, want) {
			t.Errorf("%d links: %v, want %v", maxLinks+over, err, want)
		}
	}
}

// An earlier upload of the same file is found under the last name that is searched, and not
// under the one after it.
func TestNumberedNamesAreSearchedUpToTheirBound(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	runs(t, d.Run)
	data := []byte("the same")
	for over, want := range []contract.CompareState{contract.StateSame, contract.StateAbsent} {
		folder := fmt.Sprint("numbered-", over)
		must(t, os.Mkdir(filepath.Join(tr.Workdir, folder), 0o700))
		for n := range maxNumbered + over {
			content := []byte("of that size")[:len(data)]
			if n == maxNumbered-1+over {
				content = data
			}
			must(t, os.WriteFile(filepath.Join(tr.Workdir, folder, filename.Numbered("x.csv", n)), content, 0o600))
		}
		m := contract.Manifest{Path: folder, Files: []contract.ManifestFile{{Name: "x.csv", SizeBytes: int64(len(data)), SHA256: sha(data)}}}
		out, err := d.Compare(t.Context(), m)
		if err != nil || out.Files[0].State != want {
			t.Errorf("the name number %d: %+v, %v; want %s", maxNumbered-1+over, out, err, want)
		}
	}
}
