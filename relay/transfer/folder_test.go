package transfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/memorydir"
	"colabrelay/shared/tier"
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

// manyFiles creates n files of size random bytes that are an hour old, perFolder in a folder.
func manyFiles(t testing.TB, dir string, n, size int) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	source := rand.NewChaCha8([32]byte{7})
	body := make([]byte, size)
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("sub%d", i/perFolder))
		if i%perFolder == 0 {
			must(t, os.MkdirAll(sub, 0o755))
		}
		_, _ = source.Read(body)
		name := filepath.Join(sub, fmt.Sprintf("f%06d.bin", i))
		must(t, os.WriteFile(name, body, 0o644))
		must(t, os.Chtimes(name, old, old))
	}
}

// A file that cannot be read does not affect the others. Files that grew or shrank since the
// listing are downloaded in their current state.
func TestFilesOfABatchThatChangedSinceTheListing(t *testing.T) {
	v := useVM(t)
	manyFiles(t, v.path("data"), 10, 8)
	var once atomic.Bool
	v.counts.step(t, func(r *http.Request) {
		if r.URL.Path != contract.PathContents || !once.CompareAndSwap(false, true) {
			return
		}
		must(t, os.Remove(v.path("data/sub0/f000002.bin")))
		must(t, os.WriteFile(v.path("data/sub0/f000003.bin"), make([]byte, contract.MaxBatchFile+1), 0o644))
		must(t, os.WriteFile(v.path("data/sub0/f000004.bin"), nil, 0o644))
	})
	r, err := Download(t.Context(), v.client, v.path("data"), Local{Dir: t.TempDir()}, Options{})
	if !errors.Is(err, ErrSomeFailed) || refusalCode(err) != contract.CodeNotFound || r.Failed != 1 || len(r.Notes) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	sameTree(t, r.Path, v.path("data"))
}

// A file that changes after it was hashed arrives with its new content.
func TestASmallFileThatChangesDuringTheUploadArrivesCurrent(t *testing.T) {
	v := useVM(t)
	local := filepath.Join(t.TempDir(), "data")
	manyFiles(t, local, 10, 8)
	changing := filepath.Join(local, "sub0", "f000003.bin")
	v.counts.step(t, func(r *http.Request) {
		if r.URL.Path == contract.PathCompare {
			must(t, os.WriteFile(changing, []byte("longer than before"), 0o644))
		}
	})
	r, err := Upload(t.Context(), v.client, local, v.path("data"), Options{})
	if err != nil || r.Failed != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	sameTree(t, v.path("data"), local)
}

// The files of the first page are lost with the old VM. The upload must not report success
// for half a folder.
func TestAnUploadEndsWhenTheVMIsReplaced(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	local := filepath.Join(memorydir.New(t), "data")
	manyFiles(t, local, pageFiles+10, 1)
	var compared atomic.Int64
	v.counts.step(t, func(r *http.Request) {
		if r.URL.Path == contract.PathCompare && compared.Add(1) == 2 {
			v.exec.Kill()
			must(t, os.RemoveAll(v.dir))
			must(t, os.Mkdir(v.dir, 0o755))
			v.start()
		}
	})
	o := Options{RecordDir: t.TempDir()} // its record of the lost files must not count either
	r, err := Upload(t.Context(), v.client, local, v.path("data"), o)
	if refusalCode(err) != contract.CodeNewInstance {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = Upload(t.Context(), v.client, local, v.path("data"), o)
	if err != nil || r.Files != pageFiles+10 {
		t.Errorf("again: %+v, %v", r, err)
	}
	sameTree(t, v.path("data"), local)
}

// A kill may have cut the last line. The complete lines before it count, the rest is removed, and
// later records can be read.
func TestADamagedRecordCountsUpToTheDamage(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	root, err := openLocal(t.TempDir())
	must(t, err)
	defer root.Close()
	r, err := openRecords("", root)
	must(t, err)
	defer r.close()
	open := func() *arrivals {
		t.Helper()
		a, err := openArrivals(r, root, "folder", "/content")
		must(t, err)
		return a
	}
	held := func(a *arrivals, key string) bool {
		_, ok := a.find(key, 1, when)
		return ok
	}
	a := open()
	a.add(arrival{Key: "a", Size: 1, Modified: when})
	a.close(false)
	text, err := root.ReadFile(a.name)
	must(t, err)
	must(t, root.WriteFile(a.name, append(text, text[:len(text)/2]...), 0o600))
	a = open()
	if !held(a, "a") || held(a, "b") {
		t.Errorf("the record is %+v", a.files)
	}
	a.add(arrival{Key: "b", Size: 1, Modified: when})
	a.close(false)
	a = open()
	if _, changed := a.find("a", 2, when); !held(a, "a") || !held(a, "b") || changed {
		t.Errorf("after the damage the record is %+v", a.files)
	}
	a.close(true)
	wantNames(t, root.Name())
}

// A file that was changed after it was downloaded does not count as downloaded.
func TestOnlyUnchangedFilesCountAsDownloaded(t *testing.T) {
	root, err := openLocal(t.TempDir())
	must(t, err)
	defer root.Close()
	must(t, root.WriteFile("a", []byte("x"), 0o600))
	r, err := openRecords("", root)
	must(t, err)
	defer r.close()
	e := remoteEntry{File: contract.File{Path: "/content/a", SizeBytes: 1, Modified: time.Unix(1e9, 0)}, name: "a"}
	f := &folderDownload{root: root}
	f.done, err = openArrivals(r, root, "folder", "/content")
	must(t, err)
	f.recordArrived(e.File, "a")
	f.done.close(false)
	f.done, err = openArrivals(r, root, "folder", "/content")
	must(t, err)
	defer f.done.close(true)
	if local, ok := f.arrived(e); !ok || local != "a" {
		t.Errorf("%q, %v", local, ok)
	}
	must(t, os.Chtimes(root.Name()+"/a", e.Modified, e.Modified))
	if _, ok := f.arrived(e); ok {
		t.Error("a file that was touched counts")
	}
}

// A folder in the destination's path is exchanged for a link while the download runs.
func TestAFolderExchangedForALinkDuringADownloadIsNotLeft(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "dir"), filepath.Join(base, "outside")
	must(t, os.MkdirAll(outside, 0o755))
	vm := fakevm.Start(t)
	vm.Put("big", make([]byte, 3*partBytes))
	c := clientOf(t, vm)
	var exchanged atomic.Bool
	vm.On(func(_ context.Context, r *http.Request) error {
		if r.URL.Path == contract.PathContent && exchanged.CompareAndSwap(false, true) {
			if err := errors.Join(os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, "moved")), os.Symlink(outside, filepath.Join(dir, "sub"))); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	r, err := Download(t.Context(), c, "big", Local{Dir: dir, Name: "sub/big"}, Options{RecordDir: t.TempDir()})
	if err == nil || !exchanged.Load() {
		t.Errorf("%+v, %v", r, err)
	}
	wantNames(t, outside)
}

func TestAPartIsResumedOnlyForTheSameFile(t *testing.T) {
	base := contract.FileStat{File: contract.File{SizeBytes: 10}, ETag: "e", SHA256: strings.Repeat("a", 64)}
	for name, c := range map[string]struct {
		remote string
		change func(*contract.FileStat)
		want   int64
	}{
		"the same":                {"/content/a", func(*contract.FileStat) {}, 4},
		"digest not known yet":    {"/content/a", func(st *contract.FileStat) { st.SHA256 = "" }, 4},
		"another VM, same digest": {"/content/a", func(st *contract.FileStat) { st.ETag = "f" }, 4},
		"another VM, no digest":   {"/content/a", func(st *contract.FileStat) { st.ETag, st.SHA256 = "f", "" }, 0},
		"another file":            {"/content/b", func(*contract.FileStat) {}, 0},
		"it grew":                 {"/content/a", func(st *contract.FileStat) { st.ETag, st.SHA256, st.SizeBytes = "f", "", 11 }, 4},
		"another file that grew":  {"/content/b", func(st *contract.FileStat) { st.ETag, st.SHA256, st.SizeBytes = "f", "", 11 }, 0},
		"it is shorter":           {"/content/a", func(st *contract.FileStat) { st.ETag, st.SHA256, st.SizeBytes = "f", "", 9 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := openLocal(t.TempDir())
			must(t, err)
			defer root.Close()
			p, err := openPart(root, partName("a"), "/content/a", base, nil)
			must(t, err)
			must(t, p.write(0, []byte("0123")))
			must(t, p.close())
			st := base
			c.change(&st)
			again, err := openPart(root, partName("a"), c.remote, st, func(etag string) bool { return etag == "e" })
			must(t, err)
			defer again.close()
			if again.Total() != c.want {
				t.Errorf("it has %d bytes, want %d", again.Total(), c.want)
			}
		})
	}
}
