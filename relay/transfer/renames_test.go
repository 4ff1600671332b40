package transfer

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/relay/plain"
	"colabrelay/shared/filename"
	"colabrelay/shared/memorydir"
	"colabrelay/shared/tier"
)

// A name that any program on the VM chose is shown by a shell on the laptop.
func TestNamesOnTheDiskAreVisibleAndStable(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	folder := "esc\x1b]0;HA\ad"
	for _, name := range []string{folder + "/\x1b[2Jx", folder + "/_[2Jx", "\u202egnp.exe", "zero\u200bwidth", "kept"} {
		fill(t, v.path("data/"+name), 10, byte(len(name)))
	}
	dir := t.TempDir()
	want := []string{"_gnp.exe", "esc_]0;HA_d", "kept", "zero_width"}
	for _, skipped := range []int{0, 5} {
		r, err := Download(t.Context(), v.client, v.path("data"), Local{Dir: dir}, Options{})
		if err != nil || r.Files != 5 || r.Skipped != skipped {
			t.Errorf("%+v, %v; want %d unchanged", r, err, skipped)
		}
		wantNames(t, r.Path, want...)
		wantNames(t, filepath.Join(r.Path, "esc_]0;HA_d"), "_[2Jx", "_[2Jx (1)")
		must(t, filepath.WalkDir(dir, func(at string, _ fs.DirEntry, err error) error {
			if strings.ContainsFunc(at, func(r rune) bool { return !filename.Visible(r) }) {
				t.Errorf("unexpected file %q", at)
			}
			return err
		}))
		wantRenamed(t, r, map[string]string{
			v.path("data/" + folder): "esc_]0;HA_d", v.path("data/" + folder + "/\x1b[2Jx"): "esc_]0;HA_d/_[2Jx (1)",
			v.path("data/\u202egnp.exe"): "_gnp.exe", v.path("data/zero\u200bwidth"): "zero_width",
		})
	}
}

func TestANumberedFileIsReported(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
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
	fill(t, v.path("data/a (1).txt"), 10, 3)
	want[v.path("data/a (1).txt")] = "a (1) (1).txt"
	wantRenamed(t, get(Options{}), want)
	must(t, os.Remove(v.path("data/a (1).txt")))
	wantRenamed(t, get(Options{Overwrite: true}), nil)
}

func TestNamesThatDifferAreBounded(t *testing.T) {
	tier.Long(t)
	v := newMemoryVM(t)
	for i := range 3 * maxRenamed {
		fill(t, v.path(fmt.Sprintf("ten/%d", i)), 1, 1)
		if i < maxRenamed {
			fill(t, v.path(fmt.Sprintf("ten/\x1b%d", i)), 1, 1)
		}
	}
	for i := range 300 {
		fill(t, v.path(fmt.Sprintf("many/\x1b%d", i)), 1, 1)
	}
	for name, more := range map[string]string{"ten": "", "many": "differing names that are not listed here: 290"} {
		r, err := Download(t.Context(), v.client, v.path(name), Local{Dir: memorydir.New(t)}, Options{})
		must(t, err)
		notes := slices.Clone(r.Notes)
		if last := len(notes) - 1; more != "" && notes[last] == more {
			notes = notes[:last]
		}
		if len(notes) != maxRenamed || slices.ContainsFunc(notes, func(n string) bool { return !strings.Contains(n, "has a different name here") }) {
			t.Errorf("%s: %q", name, r.Notes)
		}
	}
	must(t, os.WriteFile(v.path("ten/\x1bone past"), nil, 0o600))
	r, err := Download(t.Context(), v.client, v.path("ten"), Local{Dir: memorydir.New(t)}, Options{})
	if err != nil || len(r.Notes) != maxRenamed+1 || r.Notes[maxRenamed] != "differing names that are not listed here: 1" {
		t.Errorf("%q, %v", r.Notes, err)
	}
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
