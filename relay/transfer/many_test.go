package transfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
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

// The next call does not send files that an earlier call sent. If the VM lost one
// of them, its record does not count.
func TestAnUploadIsResumedFromItsRecord(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	const n = 3 * contract.MaxBatchFiles
	local, memory := filepath.Join(memorydir.New(t), "data"), memorydir.New(t)
	manyFiles(t, local, n, 8)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	two, sent := make(chan struct{}), atomic.Int64{} // closed when two batches are done
	closeTwo := sync.OnceFunc(func() { close(two) })
	v.counts.step(t, func(r *http.Request) {
		if r.URL.Path == contract.PathUploadBatch && sent.Add(1) == 3 {
			<-two
			cancel(errEnough)
		}
	})
	r, err := Upload(ctx, v.client, local, v.path("data"), Options{ResumeDir: memory, Report: func(p Progress) {
		if p.File >= 2*contract.MaxBatchFiles {
			closeTwo()
		}
	}})
	if !errors.Is(err, errEnough) || r.DoneBytes == 0 || r.DoneBytes == r.SizeBytes {
		t.Fatalf("first call: %+v, %v", r, err)
	}
	arrived, err := filepath.Glob(v.path("data/sub*/f*[02468].bin"))
	if err != nil || len(arrived) == 0 {
		t.Fatalf("the VM has no file after half of them were sent: %v", err)
	}
	lost := arrived[0] // batches are sent in parallel, so the first files may not arrive first
	must(t, os.Remove(lost))
	r, err = Upload(t.Context(), v.client, local, v.path("data"), Options{ResumeDir: memory})
	must(t, err)
	if r.Skipped < 2*contract.MaxBatchFiles-2 || r.Skipped > n-1 {
		t.Errorf("second call: %+v", r)
	}
	sameTree(t, v.path("data"), local)
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
	r, err := Upload(t.Context(), v.client, local, v.path("data"), Options{})
	if refusalCode(err) != contract.CodeNewInstance {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = Upload(t.Context(), v.client, local, v.path("data"), Options{})
	if err != nil || r.Files != pageFiles+10 {
		t.Errorf("again: %+v, %v", r, err)
	}
	sameTree(t, v.path("data"), local)
}
