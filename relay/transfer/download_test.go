package transfer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
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

func TestTwoDownloadsWithOneNameDoNotMix(t *testing.T) {
	v := useVM(t)
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
	unlock()
	_, err = Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
	must(t, err)
	wantNames(t, dir, "a.bin")
}

// A killed program leaves the journal that it saved last, and the part.
func TestADownloadIsResumedFromWhatAKillLeaves(t *testing.T) {
	v := useVM(t)
	const size = 64 << 20
	want := fill(t, v.path("a.bin"), size, 1)
	dir, left := t.TempDir(), t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var copied sync.Once
	_, err := Download(ctx, v.client, v.path("a.bin"), Local{Dir: dir}, Options{Report: func(p Progress) {
		if p.Done < size/2 {
			return
		}
		copied.Do(func() {
			for _, name := range []string{"a.bin.part.json", "a.bin.part"} {
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil || os.WriteFile(filepath.Join(left, name), text, 0o600) != nil {
					t.Errorf("%s was not copied: %v", name, err)
				}
			}
			cancel(errEnough)
		})
	}})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: left}, Options{})
	must(t, err)
	// A kill loses what the journal did not have.
	if sha(t, r.Path) != want || r.ResumedFrom < size/2-saveBytes-contract.MaxFilePart || r.MovedBytes != size-r.ResumedFrom {
		t.Errorf("%+v", r)
	}
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
