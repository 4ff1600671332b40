package transfer

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestAFileIsUploadedCompletely(t *testing.T) {
	v := useVM(t)
	for name, size := range map[string]int64{
		"empty.bin": 0, "one byte": 1, "exactly a part": partBytes, "parts and a bit": 3*partBytes + 17,
		"it's \"quoted\" — ünïcode": 1000, "new\nline": 5, "bad\xffutf8": 5,
	} {
		t.Run(name, func(t *testing.T) {
			local := filepath.Join(t.TempDir(), name)
			want := fill(t, local, size, 7)
			r, err := Upload(t.Context(), v.client, local, v.dir+"/in/", Options{})
			must(t, err)
			remote := v.dir + "/in/" + contract.EscapeName(name)
			whole := Result{Path: remote, SHA256: want, SizeBytes: size, DoneBytes: size, MovedBytes: size, Files: 1}
			if diff := cmp.Diff(whole, r); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if st := v.remoteFile("in/" + contract.EscapeName(name)); st.SHA256 != want {
				t.Errorf("SHA-256 is %s, want %s", st.SHA256, want)
			}
		})
	}
}

func TestTheDestinationOfAnUpload(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	must(t, os.Mkdir(v.path("there"), 0o755))
	local := filepath.Join(t.TempDir(), "a.bin")
	fill(t, local, 10, 1)
	for name, c := range map[string]struct{ remote, want string }{
		"no target":          {"", "a.bin"}, // without a folder /content, the workdir stands for it
		"a name":             {v.path("b.bin"), "b.bin"},
		"into a folder":      {v.path("new") + "/", "new/a.bin"},
		"an existing folder": {v.path("there"), "there/a.bin"},
		"missing folders":    {v.path("x/y/b.bin"), "x/y/b.bin"},
	} {
		t.Run(name, func(t *testing.T) {
			v.counts.reset()
			r, err := Upload(t.Context(), v.client, local, c.remote, Options{})
			must(t, err)
			if _, err := os.Stat(v.path(c.want)); err != nil {
				t.Errorf("%+v: %v", r, err)
			}
			if looks := v.counts.of(askStat); looks != 1 && c.remote != v.path("there") {
				t.Errorf("the target was looked at %d times before the upload started", looks)
			}
		})
	}
}

func TestAPathThatCannotBeUploadedIsRefused(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	dir := t.TempDir()
	fill(t, filepath.Join(dir, "a.bin"), 10, 1)
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, os.Symlink("fifo", filepath.Join(dir, "link")))
	for _, local := range []string{"/dev/zero", filepath.Join(dir, "fifo"), filepath.Join(dir, "link")} {
		if _, err := Upload(t.Context(), v.client, local, "", Options{}); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%q: %v", local, err)
		}
	}
	if _, err := Upload(t.Context(), v.client, filepath.Join(dir, "gone"), "", Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	for _, local := range []string{"/proc/version", "/sys/devices/system/cpu/online"} {
		if r, err := Upload(t.Context(), v.client, local, "", Options{}); !errors.Is(err, ErrNotRegular) || r.DoneBytes != 0 {
			t.Errorf("%q, whose size is wrong: %+v, %v", local, r, err)
		}
	}
	if _, err := Upload(t.Context(), v.client, "a\x00b", "", Options{}); !errors.Is(err, ErrLocalPath) {
		t.Errorf("a NUL: %v", err)
	}
	for _, remote := range []string{"/etc/a.bin", v.dir + "/../a.bin"} {
		if _, err := Upload(t.Context(), v.client, filepath.Join(dir, "a.bin"), remote, Options{}); refusalCode(err) != contract.CodeForbiddenPath {
			t.Errorf("to %q: %v", remote, err)
		}
	}
}

func TestAnUploadRestartsWhenTheFileChanges(t *testing.T) {
	tier.Long(t)
	for name, c := range map[string]struct {
		changes int
		want    error
	}{
		"once": {1, nil}, "always": {1000, ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVM(t)
			const size = 8*partBytes + 3
			local := filepath.Join(t.TempDir(), "a.bin")
			want := fill(t, local, size, 1)
			var mu sync.Mutex
			changed, asked := 0, 0
			v.counts.step(t, func(r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if r.Method != http.MethodPut || changed == c.changes {
					return
				}
				if asked++; asked%4 != 0 { // in the middle of each attempt
					return
				}
				changed++
				want = fill(t, local, size, byte(10+changed)) // the same file with other bytes
			})
			r, err := Upload(t.Context(), v.client, local, v.path("a.bin"), Options{})
			if !errors.Is(err, c.want) {
				t.Fatalf("error is %v, want %v", err, c.want)
			}
			if c.want != nil {
				if _, err := os.Stat(v.path("a.bin")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the VM has a file: %v", err)
				}
				return
			}
			if got := sha(t, v.path("a.bin")); got != want || r.SHA256 != want || r.DoneBytes != size {
				t.Errorf("result is %+v, the file's SHA-256 %s, want %s", r, got, want)
			}
		})
	}
}

func TestACancelledUploadIsResumed(t *testing.T) {
	v := useVM(t)
	const size = 64 << 20
	local := filepath.Join(t.TempDir(), "a.bin")
	want := fill(t, local, size, 1)
	ctx, report := stopAfter(t, partBytes)
	first, err := Upload(ctx, v.client, local, v.path("a.bin"), Options{Report: report})
	if !errors.Is(err, errEnough) || first.DoneBytes < partBytes || first.DoneBytes >= size {
		t.Fatalf("first call: %+v, %v", first, err)
	}
	second, err := Upload(t.Context(), v.client, local, v.path("a.bin"), Options{})
	must(t, err)
	// Parts in flight at the end of the first call may have arrived.
	if second.ResumedFrom < first.DoneBytes || second.MovedBytes != size-second.ResumedFrom || sha(t, v.path("a.bin")) != want {
		t.Errorf("second call: %+v after %d bytes", second, first.DoneBytes)
	}
}

// The version of the file does not tell that its bytes changed between two calls: the SHA-256
// at the commit does, and all bytes are sent again.
func TestAChangeThatKeepsTheTimeOfTheFileIsFoundAtTheCommit(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	const size = 64 << 20
	local := filepath.Join(t.TempDir(), "a.bin")
	fill(t, local, size, 1)
	info, err := os.Stat(local)
	must(t, err)
	ctx, report := stopAfter(t, partBytes)
	if first, err := Upload(ctx, v.client, local, v.path("a.bin"), Options{Report: report}); !errors.Is(err, errEnough) {
		t.Fatalf("first call: %+v, %v", first, err)
	}
	want := fill(t, local, size, 2)
	must(t, os.Chtimes(local, info.ModTime(), info.ModTime()))
	second, err := Upload(t.Context(), v.client, local, v.path("a.bin"), Options{})
	must(t, err)
	if second.SHA256 != want || sha(t, v.path("a.bin")) != want || second.ResumedFrom != 0 || v.counts.of(askStart) != 3 {
		t.Errorf("second call: %+v, %d starts", second, v.counts.of(askStart))
	}
}

func TestAnUploadIsResumedAfterTheExecutorDied(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	const size = 48 << 20
	local := filepath.Join(t.TempDir(), "a.bin")
	want := fill(t, local, size, 1)
	var parts atomic.Int32
	killed, restarted := make(chan struct{}), make(chan struct{})
	v.counts.step(t, func(r *http.Request) {
		if r.Method == http.MethodPut && parts.Add(1) == 8 {
			close(killed)
		}
	})
	go func() {
		defer close(restarted)
		<-killed
		v.exec.Kill()
		v.start()
	}()
	r, err := Upload(t.Context(), v.client, local, v.path("a.bin"), Options{})
	<-restarted
	must(t, err)
	if sha(t, v.path("a.bin")) != want || r.DoneBytes != size {
		t.Errorf("result is %+v", r)
	}
}

func TestUploadProgressOnlyGrowsAndEndsAtTheTotal(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	const size = 5*partBytes + 9
	local := filepath.Join(t.TempDir(), "a.bin")
	fill(t, local, size, 1)
	var last Progress
	var stages []string
	_, err := Upload(t.Context(), v.client, local, v.path("a.bin"), Options{Report: func(p Progress) {
		if p.Done < last.Done || p.Total != size || p.Files != 1 || p.Name != local {
			t.Errorf("%+v is followed by %+v", last, p)
		}
		if last.Stage != p.Stage {
			stages = append(stages, string(p.Stage))
		}
		last = p
	}})
	must(t, err)
	if last.Done != size || last.File != 1 || stages[0] != "moving" || !slices.Contains(stages, "checking") {
		t.Errorf("last is %+v, stages %v", last, stages)
	}
}
