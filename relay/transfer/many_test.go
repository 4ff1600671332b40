package transfer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/memorydir"
	"colabrelay/shared/tier"
)

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
	o := Options{ResumeDir: t.TempDir()} // its record of the lost files must not count either
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
