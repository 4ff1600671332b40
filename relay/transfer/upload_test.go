package transfer

import (
	"errors"
	"os"
	"path/filepath"
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
