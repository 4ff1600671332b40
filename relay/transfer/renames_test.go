package transfer

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"colabrelay/relay/plain"
)

func TestANumberedFileIsReported(t *testing.T) {
	v := useVM(t)
	fill(t, v.path("data/a.txt"), 10, 1)
	fill(t, v.path("data/sub/big"), 2<<20, 1) // is downloaded on its own
	fill(t, v.path("data/b"), 10, 1)
	dir := t.TempDir()
	get := func(o Options) Result {
		t.Helper()
		r, err := Download(t.Context(), v.client, v.path("data"), Local{Dir: dir}, o)
		must(t, err)
		return r
	}
	wantRenamed(t, get(Options{}), nil)
	fill(t, filepath.Join(dir, "data/a.txt"), 10, 2)
	fill(t, filepath.Join(dir, "data/sub/big"), 2<<20, 2)
	want := map[string]string{v.path("data/a.txt"): "a (1).txt", v.path("data/sub/big"): "sub/big (1)"}
	wantRenamed(t, get(Options{}), want)
	r := get(Options{})
	if wantRenamed(t, r, want); r.Skipped != 3 {
		t.Errorf("again: %+v", r)
	}
	wantRenamed(t, get(Options{Overwrite: true}), nil)
}

// wantRenamed compares the notes with the local names, by remote path.
func wantRenamed(t *testing.T, r Result, local map[string]string) {
	t.Helper()
	var want []string
	for remote, name := range local {
		want = append(want, fmt.Sprintf("%s has a different name here: %q", plain.QuoteName(remote), name))
	}
	got := slices.Sorted(slices.Values(r.Notes))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("notes are %q, want %q", got, want)
	}
}
