package transfer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

// perFolder is more than one page of a listing.
const perFolder = contract.MaxListFiles + 5

// tree creates n small files in folders of perFolder, and the difficult kinds of entries.
func tree(t *testing.T, dir string, n int) {
	t.Helper()
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("sub%d", i/perFolder))
		if i%perFolder == 0 {
			must(t, os.MkdirAll(sub, 0o755))
		}
		must(t, os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%04d.txt", i)), fmt.Appendf(nil, "file %d", i), 0o644))
	}
	must(t, os.MkdirAll(filepath.Join(dir, "empty", "inside"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "zero"), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "a.part"), []byte("no part of ours"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "a.part.json"), []byte("{}"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "it's \"quoted\" ünïcode"), []byte("q"), 0o644))
	must(t, os.Symlink("a", filepath.Join(dir, "link to a")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link out")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
}

const oddFiles = 6 // of tree: files and links to files

// sameTree compares all files and folders.
func sameTree(t *testing.T, got, want string) {
	t.Helper()
	files := func(dir string) []string {
		var out []string
		must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
			must(t, err)
			rel, _ := filepath.Rel(dir, path)
			if info.IsDir() {
				out = append(out, rel+"/")
			}
			if target, err := os.Stat(path); err == nil && target.Mode().IsRegular() && !strings.HasSuffix(path, "link out") {
				text, err := os.ReadFile(path)
				must(t, err)
				out = append(out, rel+": "+string(text))
			}
			return nil
		}))
		return out
	}
	if diff := cmp.Diff(files(want), files(got)); diff != "" {
		t.Errorf("files in %q (-want +got):\n%.4000s", got, diff)
	}
}

func TestAFolderIsDownloadedCompletelyAndOnlyOnce(t *testing.T) {
	v := useVM(t)
	const n = perFolder + 5
	tree(t, v.path("data"), n)
	dir := t.TempDir()
	get := func(o Options) Result {
		t.Helper()
		v.counts.reset()
		r, err := Download(t.Context(), v.client, v.path("data"), Local{Dir: dir}, o)
		must(t, err)
		return r
	}
	var last Progress
	r := get(Options{Report: func(p Progress) { last = p }})
	size := r.SizeBytes
	whole := Result{Path: filepath.Join(dir, "data"), IsDir: true, SizeBytes: size, DoneBytes: size, MovedBytes: size, Files: n + oddFiles, Notes: r.Notes}
	if diff := cmp.Diff(whole, r); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if last.Done != size || last.Total != size || last.File != n+oddFiles || last.Files != n+oddFiles {
		t.Errorf("last progress is %+v", last)
	}
	if notes := strings.Join(r.Notes, "\n"); len(r.Notes) != 2 || !strings.Contains(notes, "link out") || !strings.Contains(notes, "fifo") {
		t.Errorf("notes are %q", r.Notes)
	}
	sameTree(t, r.Path, v.path("data"))
	wantNames(t, dir, "data")
	must(t, os.WriteFile(v.path("data/sub1/f1005.txt"), []byte("changed"), 0o644))
	if r = get(Options{Overwrite: true}); r.Skipped != r.Files-1 || r.MovedBytes != int64(len("changed")) || v.counts.of(askContents) != 1 {
		t.Errorf("second time: %+v, %d content requests", r, v.counts.of(askContents))
	}
	sameTree(t, r.Path, v.path("data"))
}

func TestAFolderIsUploadedCompletelyAndOnlyOnce(t *testing.T) {
	v := useVM(t)
	const n = perFolder + 5
	local := filepath.Join(t.TempDir(), "data")
	tree(t, local, n)
	must(t, os.Rename(filepath.Join(local, "zero"), filepath.Join(local, "new\nline")))
	put := func(o Options) Result {
		t.Helper()
		v.counts.reset()
		r, err := Upload(t.Context(), v.client, local, v.path("data"), o)
		must(t, err)
		return r
	}
	r := put(Options{})
	size := r.SizeBytes
	whole := Result{Path: v.path("data"), IsDir: true, SizeBytes: size, DoneBytes: size, MovedBytes: size, Files: n + oddFiles, Notes: r.Notes}
	if diff := cmp.Diff(whole, r); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if notes := strings.Join(r.Notes, "\n"); len(r.Notes) != 2 || !strings.Contains(notes, "link out") || !strings.Contains(notes, "fifo") {
		t.Errorf("notes are %q", r.Notes)
	}
	sameTree(t, v.path("data"), local)
	must(t, os.WriteFile(filepath.Join(local, "sub1/f1005.txt"), []byte("changed"), 0o644))
	if r = put(Options{Overwrite: true}); r.Skipped != r.Files-1 || v.counts.of(askBatch) != 2 || r.MovedBytes != int64(len("changed")) {
		t.Errorf("second time: %+v, %d batches", r, v.counts.of(askBatch))
	}
	sameTree(t, v.path("data"), local)
}

// The state of an executor changes while it runs.
func TestAFolderIsUploadedWithoutWhatProgramsKeepInIt(t *testing.T) {
	v := useVM(t)
	dir := t.TempDir()
	for _, name := range []string{".colab-relay/log", "a.py", "__pycache__/a.pyc", "sub/__pycache__/deep/b.pyc", "sub/b.py", "sub/.hidden"} {
		writeText(t, filepath.Join(dir, name), name)
	}
	writeText(t, filepath.Join(dir, "sub", ".colab-relay"), "a file")
	r, err := Upload(t.Context(), v.client, dir, v.path("data"), Options{})
	must(t, err)
	if want := []string{"folders that were skipped, because they are named .colab-relay or __pycache__: 3"}; r.Files != 4 || !slices.Equal(r.Notes, want) {
		t.Errorf("%+v, want the notes %q", r, want)
	}
	wantNames(t, v.path("data"), "a.py", "sub")
	wantNames(t, v.path("data/sub"), ".colab-relay", ".hidden", "b.py")
}
