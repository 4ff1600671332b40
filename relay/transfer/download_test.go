package transfer

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestAFileIsDownloadedCompletely(t *testing.T) {
	v := useVM(t)
	for name, size := range map[string]int64{
		"empty.bin": 0, "one byte": 1, "exactly a part": partBytes, "parts and a bit": 3*partBytes + 17,
		"it's \"quoted\" — ünïcode": 1000, "new\nline": 5, "CON": 5, "dot.": 5,
	} {
		t.Run(name, func(t *testing.T) {
			want := fill(t, v.path(name), size, 7)
			when := time.Date(2024, 2, 29, 12, 0, 0, 123_000_000, time.UTC)
			must(t, os.Chtimes(v.path(name), when, when))
			dir := t.TempDir()
			r, err := Download(t.Context(), v.client, v.path(name), Local{Dir: dir}, Options{})
			must(t, err)
			local := localName(name, onWindows)
			whole := Result{Path: filepath.Join(dir, local), SHA256: want, SizeBytes: size, DoneBytes: size, MovedBytes: size, Files: 1}
			if diff := cmp.Diff(whole, r); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if got := sha(t, r.Path); got != want {
				t.Errorf("SHA-256 is %s, want %s", got, want)
			}
			wantNames(t, dir, local)
			if info, err := os.Stat(r.Path); err != nil || !info.ModTime().Equal(when) {
				t.Errorf("modified is %v, want %v (%v)", info.ModTime(), when, err)
			}
		})
	}
}

func TestAnExistingFileIsOnlyReplacedOnRequest(t *testing.T) {
	v := useVM(t)
	want := fill(t, v.path("a.bin"), partBytes+5, 1)
	dir := t.TempDir()
	other := fill(t, filepath.Join(dir, "a.bin"), partBytes+5, 2)
	get := func(o Options) Result {
		t.Helper()
		r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, o)
		must(t, err)
		return r
	}
	if r := get(Options{}); r.Path != filepath.Join(dir, "a (1).bin") || sha(t, r.Path) != want {
		t.Errorf("next to a different file: %+v", r)
	}
	v.counts.reset()
	skipped := Result{Path: filepath.Join(dir, "a (1).bin"), SHA256: want, SizeBytes: partBytes + 5, DoneBytes: partBytes + 5, Files: 1, Skipped: 1}
	if diff := cmp.Diff(skipped, get(Options{})); diff != "" || v.counts.of(askContent) != 0 {
		t.Errorf("repeated, with %d requests for content (-want +got):\n%s", v.counts.of(askContent), diff)
	}
	if got := sha(t, filepath.Join(dir, "a.bin")); got != other {
		t.Error("the different one was changed")
	}
	if r := get(Options{Overwrite: true}); r.Path != filepath.Join(dir, "a.bin") || sha(t, r.Path) != want {
		t.Errorf("overwriting: %+v", r)
	}
	wantNames(t, dir, "a (1).bin", "a.bin")
}

func TestTheDestinationOfADownload(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	fill(t, v.path("a.bin"), 10, 1)
	for name, c := range map[string]struct{ name, want string }{
		"its own name":           {"", "a.bin"},
		"another name":           {"b.bin", "b.bin"},
		"a folder to make":       {"deep/er/b.bin", "deep/er/b.bin"},
		"into a folder":          {"deep/", "deep/a.bin"},
		"an existing folder":     {"there", "there/a.bin"},
		"a link inside":          {"link/b.bin", "there/b.bin"},
		"a folder of that name":  {"there/", "there/a.bin"},
		"a name with a dot path": {"./x/./y", "x/y"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Mkdir(filepath.Join(dir, "there"), 0o755))
			must(t, os.Symlink("there", filepath.Join(dir, "link")))
			_, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir, Name: c.name}, Options{})
			must(t, err)
			if _, err := os.Stat(filepath.Join(dir, c.want)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADownloadNeverLeavesItsFolder(t *testing.T) {
	v := useVM(t)
	fill(t, v.path("a.bin"), 10, 1)
	base := t.TempDir()
	dir, out := filepath.Join(base, "dir"), filepath.Join(base, "out")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.MkdirAll(out, 0o755))
	must(t, os.Symlink(out, filepath.Join(dir, "link")))
	must(t, os.Symlink(filepath.Join(out, "planted"), filepath.Join(dir, "a.bin")))
	for _, name := range []string{"../x", "/tmp/x", "link/x", "link/sub/x", "..", "a/../../x", "x\x00"} {
		if _, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir, Name: name}, Options{}); !errors.Is(err, ErrForbiddenName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, o := range []Options{{}, {Overwrite: true}} {
		_, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, o)
		must(t, err)
	}
	wantNames(t, out)
	wantNames(t, base, "dir", "out")
}

func TestAPathThatCannotBeDownloadedIsRefused(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	must(t, os.Symlink("/dev/null", v.path("null")))
	for remote, code := range map[string]contract.Code{
		v.path("gone"): contract.CodeNotFound, "/etc/passwd": contract.CodeForbiddenPath, v.path("null"): contract.CodeForbiddenPath,
		v.dir + "/../x": contract.CodeForbiddenPath,
	} {
		_, err := Download(t.Context(), v.client, remote, Local{Dir: t.TempDir()}, Options{})
		if refusalCode(err) != code {
			t.Errorf("%q: %v, want %s", remote, err, code)
		}
	}
}

// The file is replaced in the middle of the first attempts, or of all of them.
func TestADownloadRestartsWhenTheFileChanges(t *testing.T) {
	tier.Long(t)
	for name, c := range map[string]struct {
		changes int
		want    error
	}{
		"once": {1, nil}, "twice": {2, nil}, "always": {1000, ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVM(t)
			const size = 8*partBytes + 3
			want := fill(t, v.path("a.bin"), size, 1)
			var mu sync.Mutex
			changed, asked := 0, 0
			v.counts.step(t, func(r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if r.URL.Path != contract.PathContent || changed == c.changes {
					return
				}
				if asked++; asked%4 != 0 { // in the middle of each attempt
					return
				}
				changed++
				want = fill(t, v.path("new"), size, byte(10+changed))
				must(t, os.Rename(v.path("new"), v.path("a.bin")))
			})
			dir := t.TempDir()
			r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
			if !errors.Is(err, c.want) {
				t.Fatalf("error is %v, want %v", err, c.want)
			}
			if c.want != nil {
				if got := names(t, dir); strings.Join(got, " ") != "a.bin.part a.bin.part.json" {
					t.Errorf("the folder contains %q", got)
				}
				return
			}
			if got := sha(t, r.Path); got != want || r.SHA256 != want || r.DoneBytes != size {
				t.Errorf("result is %+v, the file's SHA-256 %s, want %s", r, got, want)
			}
		})
	}
}

func TestACancelledDownloadIsResumed(t *testing.T) {
	v := useVM(t)
	const size = 64 << 20
	want := fill(t, v.path("a.bin"), size, 1)
	dir := t.TempDir()
	ctx, report := stopAfter(t, partBytes)
	first, err := Download(ctx, v.client, v.path("a.bin"), Local{Dir: dir}, Options{Report: report})
	if !errors.Is(err, errEnough) || first.DoneBytes < partBytes || first.DoneBytes >= size || first.SizeBytes != size {
		t.Fatalf("first call: %+v, %v", first, err)
	}
	wantNames(t, dir, "a.bin.part", "a.bin.part.json")
	second, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
	must(t, err)
	if second.ResumedFrom != first.DoneBytes || second.MovedBytes != size-first.DoneBytes || sha(t, second.Path) != want {
		t.Errorf("second call: %+v after %d bytes", second, first.DoneBytes)
	}
	wantNames(t, dir, "a.bin")
}

func TestADownloadIsResumedAfterTheExecutorDied(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	const size = 48 << 20
	want := fill(t, v.path("a.bin"), size, 1)
	var parts atomic.Int32
	killed, restarted := make(chan struct{}), make(chan struct{})
	v.counts.step(t, func(r *http.Request) {
		if r.URL.Path == contract.PathContent && parts.Add(1) == 7 {
			close(killed)
		}
	})
	go func() {
		defer close(restarted)
		<-killed
		v.exec.Kill()
		v.start()
	}()
	r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: t.TempDir()}, Options{})
	<-restarted
	must(t, err)
	if sha(t, r.Path) != want || r.MovedBytes > size+size/50 {
		t.Errorf("result is %+v", r)
	}
}

func TestDownloadProgressOnlyGrowsAndEndsAtTheTotal(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	const size = 5*partBytes + 9
	fill(t, v.path("a.bin"), size, 1)
	var last Progress
	stages := map[Stage]bool{}
	_, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: t.TempDir()}, Options{Report: func(p Progress) {
		if p.Done < last.Done || p.Total != size || p.Files != 1 || p.Name != "a.bin" {
			t.Errorf("%+v is followed by %+v", last, p)
		}
		last, stages[p.Stage] = p, true
	}})
	must(t, err)
	if last.Done != size || last.File != 1 || !stages[StageMoving] || !stages[StageChecking] {
		t.Errorf("last is %+v, stages %v", last, stages)
	}
}

func TestTwoDownloadsWithOneNameDoNotMix(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	fill(t, v.path("a.bin"), partBytes, 1)
	dir := t.TempDir()
	root, err := openLocal(dir)
	must(t, err)
	defer root.Close()
	unlock, err := lockName(root, "a.bin")
	must(t, err)
	if _, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{}); !errors.Is(err, ErrBusy) {
		t.Errorf("while another has the name: %v", err)
	}
	if _, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir, Name: "b.bin"}, Options{}); err != nil {
		t.Errorf("under another name: %v", err)
	}
	unlock()
	_, err = Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
	must(t, err)
	wantNames(t, dir, "a.bin", "b.bin")
}

// Bytes that the journal lists are wrong, as after a power cut.
func TestWrongBytesOnTheDiskAreNeverAccepted(t *testing.T) {
	v := useVM(t)
	const size = 3 * partBytes
	want := fill(t, v.path("a.bin"), size, 1)
	dir := t.TempDir()
	ctx, report := stopAfter(t, partBytes)
	if _, err := Download(ctx, v.client, v.path("a.bin"), Local{Dir: dir}, Options{Report: report}); !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	must(t, os.Truncate(filepath.Join(dir, "a.bin.part"), 0))
	must(t, os.Truncate(filepath.Join(dir, "a.bin.part"), size))
	r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
	must(t, err)
	if sha(t, r.Path) != want {
		t.Error("the file is wrong")
	}
}

func TestADeadConnectionEndsWithTheContext(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	fill(t, v.path("a.bin"), 4*partBytes, 1)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	v.counts.step(t, func(r *http.Request) {
		if r.URL.Path == contract.PathContent {
			v.wire.Close()
		}
	})
	r, err := Download(ctx, v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
	if !errors.Is(err, context.DeadlineExceeded) || r.SizeBytes != 4*partBytes {
		t.Errorf("%+v, %v", r, err)
	}
}
