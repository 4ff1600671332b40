package transfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

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

// faraway gives v a client whose connection has a latency of 60 ms in each direction.
func (v *vm) faraway() {
	v.t.Helper()
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "far", "127.0.0.1:0", v.listen)
	must(v.t, proxy.Start())
	v.t.Cleanup(proxy.Stop)
	for _, direction := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"name": %q, "type": "latency", "stream": %q, "attributes": {"latency": 60}}`, direction, direction)
		_, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
		must(v.t, err)
	}
	v.client, v.counts = newClient(v.t, "http://"+proxy.Listen)
}

func (c *counting) all() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, n := range c.seen {
		sum += n
	}
	return sum
}

// defaultHold is the time budget of one tool call.
const defaultHold = 45 * time.Second

// Sent one by one, each file takes four round trips, and 5,000 files exceeded the limit of
// requests per minute.
func TestManySmallFilesAreUploadedWithFewRequests(t *testing.T) {
	tier.Long(t)
	v := newMemoryVM(t)
	v.faraway()
	const n = 5000
	local := filepath.Join(memorydir.New(t), "data")
	manyFiles(t, local, n, 1024)
	ctx, cancel := context.WithTimeout(t.Context(), defaultHold)
	defer cancel()
	var last Progress
	started := time.Now()
	r, err := Upload(ctx, v.client, local, v.path("data"), Options{ResumeDir: memorydir.New(t), Report: func(p Progress) { last = p }})
	must(t, err)
	t.Logf("%d files took %s and %d requests", n, time.Since(started).Round(time.Millisecond), v.counts.all())
	whole := Result{Path: v.path("data"), IsDir: true, SizeBytes: n * 1024, DoneBytes: n * 1024, MovedBytes: n * 1024, Files: n}
	if diff := cmp.Diff(whole, r); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if last.File != n || last.Done != last.Total || last.Total != n*1024 {
		t.Errorf("last progress is %+v", last)
	}
	if got := v.counts.all(); got >= 60 {
		t.Errorf("%d requests, want under 60", got)
	}
	sameTree(t, v.path("data"), local)
	v.counts.reset()
	again, err := Upload(t.Context(), v.client, local, v.path("data"), Options{})
	must(t, err)
	whole.Skipped, whole.MovedBytes = n, 0
	if diff := cmp.Diff(whole, again); diff != "" || v.counts.all() > 5 {
		t.Errorf("again, with %d requests (-want +got):\n%s", v.counts.all(), diff)
	}
}

func TestManySmallFilesAreDownloadedWithFewRequests(t *testing.T) {
	tier.Long(t)
	v := newMemoryVM(t)
	v.faraway()
	const n = 5000
	manyFiles(t, v.path("data"), n, 1024)
	dir := memorydir.New(t)
	var last Progress
	started := time.Now()
	r, err := Download(t.Context(), v.client, v.path("data"), Local{Dir: dir}, Options{Report: func(p Progress) { last = p }})
	must(t, err)
	t.Logf("%d files took %s and %d requests", n, time.Since(started).Round(time.Millisecond), v.counts.all())
	whole := Result{Path: filepath.Join(dir, "data"), IsDir: true, SizeBytes: n * 1024, DoneBytes: n * 1024, MovedBytes: n * 1024, Files: n}
	if diff := cmp.Diff(whole, r); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if last.File != n || last.Done != last.Total || last.Total != n*1024 {
		t.Errorf("last progress is %+v", last)
	}
	if got := v.counts.all(); got >= 60 {
		t.Errorf("%d requests, want under 60", got)
	}
	sameTree(t, r.Path, v.path("data"))
	v.counts.reset()
	again, err := Download(t.Context(), v.client, v.path("data"), Local{Dir: dir}, Options{})
	must(t, err)
	whole.Skipped, whole.MovedBytes = n, 0
	if diff := cmp.Diff(whole, again); diff != "" || v.counts.all() >= 20 {
		t.Errorf("again, with %d requests (-want +got):\n%s", v.counts.all(), diff)
	}
}

// A file that cannot be read does not affect the others. Files that grew or shrank since the
// listing are downloaded in their current state.
func TestFilesOfABatchThatChangedSinceTheListing(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
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

// Each of several calls with little time makes progress.
func TestShortCallsFinishALargeFolder(t *testing.T) {
	tier.Long(t)
	v := newMemoryVM(t)
	n := 2*pageFiles + contract.MaxBatchFiles
	local, memory := filepath.Join(memorydir.New(t), "data"), memorydir.New(t)
	manyFiles(t, local, n, 8)
	done := 0
	for call := 1; ; call++ {
		v.counts.reset()
		r, err := v.uploadUntil(local, memory, 5)
		if err == nil {
			t.Logf("%d files took %d calls, the last with %d requests", n, call, v.counts.all())
			break
		}
		if !errors.Is(err, errEnough) || call > n/1000 {
			t.Fatalf("call %d: %+v, %v", call, r, err)
		}
		now := countFiles(t, v.path("data"))
		if now <= done {
			t.Fatalf("call %d moved nothing: the VM has %d files", call, now)
		}
		done = now
	}
	if got := countFiles(t, v.path("data")); got != n {
		t.Errorf("the VM has %d files, want %d", got, n)
	}
	wantNames(t, memory)
}

// uploadUntil uploads until the batch with the given number is sent, which ends the call.
func (v *vm) uploadUntil(local, memory string, batch int64) (Result, error) {
	ctx, cancel := context.WithCancelCause(v.t.Context())
	defer cancel(nil)
	var sent atomic.Int64
	v.counts.step(v.t, func(r *http.Request) {
		if r.URL.Path == contract.PathUploadBatch && sent.Add(1) == batch {
			cancel(errEnough)
		}
	})
	return Upload(ctx, v.client, local, v.path("data"), Options{ResumeDir: memory})
}

func countFiles(t testing.TB, dir string) int {
	t.Helper()
	n := 0
	must(t, filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			n++
		}
		return err
	}))
	return n
}

// The next call neither reads nor sends files that an earlier call sent. If the VM lost one
// of them, its record does not count.
func TestAnUploadIsResumedFromItsRecord(t *testing.T) {
	tier.Long(t)
	v := newMemoryVM(t)
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
	changed := filepath.Join(local, "sub0", "f000001.bin")
	must(t, os.WriteFile(changed, []byte("changed!"), 0o644))
	hashed := map[string]bool{}
	r, err = Upload(t.Context(), v.client, local, v.path("data"), Options{Overwrite: true, ResumeDir: memory, Report: func(p Progress) {
		if p.Stage == StageHashing && p.Hashed > 0 {
			hashed[p.Name] = true
		}
	}})
	must(t, err)
	if r.Skipped < 2*contract.MaxBatchFiles-2 || r.Skipped > n-2 || len(hashed) > n-2*contract.MaxBatchFiles+1 {
		t.Errorf("second call: %+v with %d files hashed", r, len(hashed))
	}
	sameTree(t, v.path("data"), local)
}

// A file that changes after it was hashed arrives with its new content.
func TestASmallFileThatChangesDuringTheUploadArrivesCurrent(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
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
	v := newMemoryVM(t)
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
