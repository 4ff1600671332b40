package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/memorydir"
	"colabrelay/shared/tier"
)

// bare fails if dir, or a folder in it, contains a record of the relay.
func bare(t *testing.T, dir string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), hiddenPrefix) && !strings.HasSuffix(path, ".new") {
			t.Errorf("a person's folder has %q, %v", path, err)
		}
		return nil // a part file may just have got its name
	}))
}

func TestTheRecordsOfADownloadAreInTheRelaysFolder(t *testing.T) {
	vm := fakevm.Start(t)
	vm.Put("data/a", []byte("a"))
	vm.Put("data/big", make([]byte, 2*contract.MaxBatchFile))
	vm.Put("one", []byte("1"))
	dir, own := t.TempDir(), filepath.Join(t.TempDir(), "own")
	c := clientOf(t, vm)
	var during atomic.Int32
	vm.On(func(_ context.Context, r *http.Request) error {
		if r.URL.Path == contract.PathContent || r.URL.Path == contract.PathContents {
			during.Add(1)
			bare(t, dir)
		}
		return nil
	})
	o := Options{RecordDir: own}
	for _, remote := range []string{"data", "one"} {
		_, err := Download(t.Context(), c, remote, Local{Dir: dir, Runtime: "gpu"}, o)
		must(t, err)
	}
	if n := during.Load(); n < 2 {
		t.Errorf("%d requests for content", n)
	}
	bare(t, dir)
	vm.Put("data/a", []byte("b")) // its own folder is used again, through another spelling, too
	alias := filepath.Join(t.TempDir(), "alias")
	must(t, os.Symlink(dir, alias))
	for _, at := range []string{dir, alias} {
		r, err := Download(t.Context(), c, "data", Local{Dir: at, Runtime: "gpu"}, o)
		if err != nil || r.Path != filepath.Join(at, "data") || r.Files != 2 || r.Skipped == 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	wantNames(t, dir, "data", "one")
	if left := names(t, own); len(left) != 1 || !strings.HasSuffix(left[0], originSuffix) {
		t.Errorf("the relay's folder has %q", left)
	}
	other, err := Download(t.Context(), c, "data", Local{Dir: t.TempDir(), Runtime: "gpu"}, o)
	if err != nil || filepath.Base(other.Path) != "data" {
		t.Errorf("the same name in another folder: %+v, %v", other, err)
	}
}

// A killed relay leaves the record of what is complete; the next one continues in that folder.
func TestAKilledDownloadOfAFolderIsResumedFromTheRelaysFolder(t *testing.T) {
	tier.Long(t)
	v := newMemoryVM(t)
	const n = 3 * contract.MaxBatchFiles
	manyFiles(t, v.path("data"), n, 8)
	dir, own := memorydir.New(t), memorydir.New(t)
	cmd, lines := startHelper(t, helperTask{URL: "http://" + v.wire.Addr, Remote: v.path("data"), Dir: dir, RecordDir: own}, nil)
	killMidway(t, cmd, lines, n*8/2)
	bare(t, dir)
	r, err := Download(t.Context(), v.client, v.path("data"), Local{Dir: dir}, Options{RecordDir: own})
	if err != nil || r.Path != filepath.Join(dir, "data") || r.Skipped < contract.MaxBatchFiles || r.Skipped == n {
		t.Errorf("%+v, %v", r, err)
	}
	left, err := filepath.Glob(filepath.Join(r.Path, "sub*", "*"+partSuffix)) // of a file that was getting its name
	must(t, err)
	for _, part := range left[:min(len(left), filesAtOnce)] {
		must(t, os.Remove(part))
	}
	sameTree(t, r.Path, v.path("data"))
	wantNames(t, dir, "data")
}

func TestTheLocksOfTwoDownloadsAreInTheRelaysFolder(t *testing.T) {
	tier.Long(t)
	root := rootOf(t, t.TempDir())
	defer root.Close()
	own := filepath.Join(t.TempDir(), "own")
	first, err := openRecords(own, root)
	must(t, err)
	defer first.close()
	second, err := openRecords(own, root)
	must(t, err)
	defer second.close()
	unlock, err := first.lock(root, "a")
	must(t, err)
	if _, err := second.lock(root, "a"); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), fmt.Sprintf("%q", filepath.Join(root.Name(), "a"))) {
		t.Errorf("a locked name: %v", err)
	}
	other, err := second.lock(root, "b")
	must(t, err)
	other()
	unlock()
	wantNames(t, own)
}

// One more than each bound: the oldest is removed, and a lock that is held stays.
func TestTheRecordsAreBounded(t *testing.T) {
	tier.Long(t)
	root := rootOf(t, t.TempDir())
	defer root.Close()
	r, err := openRecords(filepath.Join(t.TempDir(), "own"), root)
	must(t, err)
	defer r.close()
	held, err := r.lock(root, "held")
	must(t, err)
	defer held()
	begin := time.Now().Add(-time.Hour)
	for suffix, most := range map[string]int{originSuffix: maxOrigins, doneSuffix: maxDone, lockSuffix: maxLocks} {
		for i := range most + 1 {
			name := filepath.Join(r.root.Name(), hiddenName(fmt.Sprint(i), suffix))
			writeText(t, name, "")
			at := begin.Add(time.Duration(i) * time.Second)
			must(t, os.Chtimes(name, at, at))
		}
	}
	must(t, os.Chtimes(filepath.Join(r.root.Name(), r.name("held", lockSuffix)), begin, begin.Add(-time.Hour)))
	must(t, newOrigin("gpu", "data").save(r, "data"))
	for suffix, want := range map[string]int{originSuffix: maxOrigins + 1, doneSuffix: maxDone, lockSuffix: maxLocks + 1} {
		if got := len(oldest(r.root, suffix, 0)); got != want {
			t.Errorf("%d files %s, want %d", got, suffix, want)
		}
		if _, err := r.root.Stat(hiddenName("0", suffix)); err == nil {
			t.Errorf("the oldest %s is still there", suffix)
		}
	}
	if _, err := r.lock(root, "held"); !errors.Is(err, ErrBusy) {
		t.Errorf("the held lock: %v", err)
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
