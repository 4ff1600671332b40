package transfer

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
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
			if got := sha(t, v.path("in/"+name)); got != want {
				t.Errorf("SHA-256 is %s, want %s", got, want)
			}
		})
	}
}

func TestAPathThatCannotBeUploadedIsRefused(t *testing.T) {
	v := useVM(t)
	dir := t.TempDir()
	fill(t, filepath.Join(dir, "a.bin"), 10, 1)
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, os.Symlink("fifo", filepath.Join(dir, "link")))
	for _, local := range []string{"/dev/zero", filepath.Join(dir, "fifo"), filepath.Join(dir, "link")} {
		if _, err := Upload(t.Context(), v.client, local, "", Options{}); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%q: %v", local, err)
		}
	}
	for _, local := range []string{"/proc/version", "/sys/devices/system/cpu/online"} {
		if r, err := Upload(t.Context(), v.client, local, "", Options{}); !errors.Is(err, ErrNotRegular) || r.DoneBytes != 0 {
			t.Errorf("%q, whose size is wrong: %+v, %v", local, r, err)
		}
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

// The bit is no part of the digest: it arrives with new content, and where the same content is.
func TestTheExecutableBitOfTheOwnerStays(t *testing.T) {
	v := useVM(t)
	dir := t.TempDir()
	sizes := map[string]int64{"s.sh": 100, "tool.bin": 2 * contract.MaxBatchFile}
	move := func(doing string, get, folder bool) {
		t.Helper()
		from, to := filepath.Join(dir, "here"), v.path("there")
		if get {
			from, to = to, filepath.Join(dir, "back")
		}
		for name, size := range sizes {
			fill(t, filepath.Join(from, name), size, 1)
			must(t, os.Chmod(filepath.Join(from, name), 0o755))
			fill(t, filepath.Join(from, "plain"), 5, 1)
			var err error
			switch at := map[bool]string{false: "/" + name}[folder]; {
			case get:
				_, err = Download(t.Context(), v.client, from+at, Local{Dir: dir, Name: "back" + at}, Options{Overwrite: true})
			default:
				_, err = Upload(t.Context(), v.client, from+at, to+at, Options{})
			}
			must(t, err)
		}
		for name := range sizes {
			info, err := os.Stat(filepath.Join(to, name))
			must(t, err)
			if info.Mode().Perm() != 0o755 {
				t.Errorf("%s: %s has the mode %v", doing, name, info.Mode())
			}
			must(t, os.Chmod(filepath.Join(to, name), 0o644))
		}
		if info, err := os.Stat(filepath.Join(to, "plain")); folder && (err != nil || info.Mode().Perm() != 0o644) {
			t.Errorf("%s: %v, %v", doing, info, err)
		}
	}
	for _, get := range []bool{false, true} {
		move("a folder", get, true)
		move("a folder, same content there", get, true)
		move("a file, same content there", get, false)
		must(t, os.RemoveAll(map[bool]string{false: v.path("there"), true: filepath.Join(dir, "back")}[get]))
		move("a file", get, false)
	}
}

func writeText(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func wantText(t testing.TB, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%q holds %q, %v; want %q", path, got, err, want)
	}
}

func TestAnExistingRemoteFileIsOnlyReplacedOnRequest(t *testing.T) {
	v := useVM(t)
	local := filepath.Join(t.TempDir(), "a.bin")
	want := fill(t, local, partBytes+5, 1)
	put := func(o Options) (Result, error) {
		return Upload(t.Context(), v.client, local, v.path("a.bin"), o)
	}
	for _, size := range []int64{partBytes + 5, 10} {
		other := fill(t, v.path("a.bin"), size, 2)
		v.counts.reset()
		r, err := put(Options{RecordDir: t.TempDir()})
		if !errors.Is(err, ErrExists) || r.Failed != 1 || v.counts.of(askStart) != 0 {
			t.Errorf("of %d bytes: %+v, %v", size, r, err)
		}
		wantNames(t, v.dir, "a.bin")
		if sha(t, v.path("a.bin")) != other {
			t.Error("the different one was changed")
		}
	}
	r, err := put(Options{Overwrite: true})
	if err != nil || r.Path != v.path("a.bin") || sha(t, r.Path) != want {
		t.Errorf("overwriting: %+v, %v", r, err)
	}
	v.counts.reset()
	same := Result{Path: v.path("a.bin"), SHA256: want, SizeBytes: partBytes + 5, DoneBytes: partBytes + 5, Files: 1, Skipped: 1}
	r, err = put(Options{})
	if diff := cmp.Diff(same, r); err != nil || diff != "" || v.counts.of(askStart) != 0 {
		t.Errorf("repeated: %v (-want +got):\n%s", err, diff)
	}
	must(t, os.Remove(v.path("a.bin")))
	if r, err := put(Options{}); err != nil || r.MovedBytes != partBytes+5 || sha(t, v.path("a.bin")) != want {
		t.Errorf("after it was deleted: %+v, %v", r, err)
	}
}

// What an upload put there, a later one replaces while only the local file changes.
func TestAnUploadReplacesWhatAnEarlierOnePutThere(t *testing.T) {
	v := newVM(t)
	local, records := filepath.Join(t.TempDir(), "helpers.py"), t.TempDir()
	o := Options{RecordDir: records}
	put := func(text, remote string) error {
		t.Helper()
		writeText(t, local, text)
		_, err := Upload(t.Context(), v.client, local, remote, o)
		return err
	}
	for _, remote := range []string{"", v.dir + "/", v.path("helpers.py"), "helpers.py"} { // one file, however it is named
		must(t, put("version of "+remote, remote))
		wantText(t, v.path("helpers.py"), "version of "+remote)
	}
	wantNames(t, v.dir, ".colab-relay", "helpers.py")
	writeText(t, v.path("helpers.py"), "edited on the VM")
	if err := put("edited here too", ""); !errors.Is(err, ErrExists) {
		t.Errorf("after a change on the VM: %v", err)
	}
	wantText(t, v.path("helpers.py"), "edited on the VM")
	o.RecordDir = t.TempDir() // another computer
	if err := put("from elsewhere", ""); !errors.Is(err, ErrExists) {
		t.Errorf("of another computer: %v", err)
	}
}

// The file changes on the VM after the relay compared it and while the new one is sent.
func TestAFileThatChangesOnTheVMDuringAnUploadIsKept(t *testing.T) {
	v := useVM(t)
	dir := t.TempDir()
	o := Options{RecordDir: t.TempDir()}
	for name, there := range map[string]bool{"old": true, "new": false} {
		local := filepath.Join(dir, name)
		if there {
			writeText(t, local, "first")
			_, err := Upload(t.Context(), v.client, local, v.path(name), o)
			must(t, err)
		}
		writeText(t, local, "second, here")
		var once atomic.Bool
		v.counts.step(t, func(r *http.Request) {
			if r.URL.Path == contract.PathUploads && once.CompareAndSwap(false, true) {
				writeText(t, v.path(name), "second, there")
			}
		})
		r, err := Upload(t.Context(), v.client, local, v.path(name), o)
		if !errors.Is(err, ErrExists) || !once.Load() {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		wantText(t, v.path(name), "second, there")
	}
}

func TestAFolderReplacesOnlyWhatAnEarlierUploadPutThere(t *testing.T) {
	v := useVM(t)
	local := filepath.Join(t.TempDir(), "proj")
	o := Options{RecordDir: t.TempDir()}
	put := func() (Result, error) { return Upload(t.Context(), v.client, local, v.path("proj"), o) }
	files := []string{"a.py", "b.py", "sub/c.py", "big"}
	edit := func(text string) {
		for _, name := range files[:3] {
			writeText(t, filepath.Join(local, name), text+name)
		}
		fill(t, filepath.Join(local, "big"), 2*contract.MaxBatchFile, text[0])
	}
	edit("1")
	_, err := put()
	must(t, err)
	edit("2")
	if r, err := put(); err != nil || r.Skipped != 0 {
		t.Errorf("edited here: %+v, %v", r, err)
	}
	sameTree(t, v.path("proj"), local)

	writeText(t, v.path("proj/b.py"), "edited on the VM")
	edit("3")
	writeText(t, filepath.Join(local, "fresh.py"), "fresh")
	r, err := put()
	if !errors.Is(err, ErrExists) {
		t.Errorf("edited on both sides: %+v, %v", r, err)
	}
	wantText(t, v.path("proj/a.py"), "2a.py")
	wantText(t, v.path("proj/b.py"), "edited on the VM")
	if _, err := os.Stat(v.path("proj/fresh.py")); err == nil {
		t.Error("a file of a refused folder was sent")
	}
	o.Overwrite = true
	_, err = put()
	must(t, err)
	sameTree(t, v.path("proj"), local)
}

// A large file of the same size is compared when it is its turn.
func TestALargeFileOfAFolderThatIsAnotherIsKept(t *testing.T) {
	v := useVM(t)
	local := filepath.Join(t.TempDir(), "d")
	fill(t, filepath.Join(local, "big"), 2*contract.MaxBatchFile, 1)
	want := fill(t, v.path("d/big"), 2*contract.MaxBatchFile, 2)
	r, err := Upload(t.Context(), v.client, local, v.path("d"), Options{RecordDir: t.TempDir()})
	if !errors.Is(err, ErrExists) || r.DoneBytes != 0 || sha(t, v.path("d/big")) != want {
		t.Errorf("%+v, %v", r, err)
	}
	wantNames(t, v.path("d"), "big")
}

func TestWhatANewVMHasIsNotWhatAnEarlierOneHad(t *testing.T) {
	l := openLastUploads(t.TempDir())
	l.add("vm-1", "/content/a", strings.Repeat("a", 64), filepath.Join("job", "a"))
	must(t, l.save())
	l = openLastUploads(l.dir)
	if l.digest("vm-1", "/content/a") == "" || l.digest("vm-2", "/content/a") != "" || l.digest("", "/content/a") != "" || l.digest("vm-1", "/content/b") != "" {
		t.Error("another file counts as uploaded")
	}
	want := []UploadedFile{{filepath.Join("job", "a"), "/content/a", strings.Repeat("a", 64)}}
	if got := Uploaded(l.dir, "vm-1", "job"); !slices.Equal(got, want) || Uploaded(l.dir, "vm-1", "other") != nil {
		t.Errorf("uploaded to vm-1: %v", got)
	}
}
