package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/damage"
	"colabrelay/shared/tier"
)

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
		if text := fmt.Sprint(err); !strings.Contains(text, fmt.Sprintf("“%s” (%d bytes, changed 20", v.path("a.bin"), size)) || !strings.HasSuffix(text, "was not uploaded from here") {
			t.Errorf("the error is %s", text)
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
	must(t, os.Remove(v.path("a.bin")))
	must(t, os.MkdirAll(v.path("a.bin/a.bin"), 0o755))
	if r, err := put(Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("a folder has the name: %+v, %v", r, err)
	}
}

// What an upload put there, a later one replaces while only the local file changes.
func TestAnUploadReplacesWhatAnEarlierOnePutThere(t *testing.T) {
	tier.Long(t)
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
	if err := put("edited here too", ""); !errors.Is(err, ErrExists) || !strings.HasSuffix(err.Error(), "changed there since it was uploaded") {
		t.Errorf("after a change on the VM: %v", err)
	}
	wantText(t, v.path("helpers.py"), "edited on the VM")
	o.Overwrite = true
	must(t, put("overwritten", ""))
	o.Overwrite = false
	must(t, put("after overwriting", ""))
	wantText(t, v.path("helpers.py"), "after overwriting")
	must(t, put("after overwriting", "")) // unchanged
	writeText(t, v.path("same.py"), "the same")
	must(t, put("the same", v.path("same.py")))
	must(t, put("changed here", v.path("same.py")))
	wantText(t, v.path("same.py"), "changed here")
	o.RecordDir = t.TempDir() // another computer
	if err := put("from elsewhere", ""); !errors.Is(err, ErrExists) {
		t.Errorf("of another computer: %v", err)
	}
}

// The file changes on the VM after the relay compared it and while the new one is sent.
func TestAFileThatChangesOnTheVMDuringAnUploadIsKept(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	dir := t.TempDir()
	o := Options{RecordDir: t.TempDir()}
	for name, there := range map[string]bool{"old": true, "new": false} {
		local := filepath.Join(dir, name)
		if there {
			writeText(t, local, "first")
			_, err := Upload(t.Context(), v.client, local, "", o)
			must(t, err)
		}
		writeText(t, local, "second, here")
		var once atomic.Bool
		v.counts.step(t, func(r *http.Request) {
			if r.URL.Path == contract.PathUploads && once.CompareAndSwap(false, true) {
				writeText(t, v.path(name), "second, there")
			}
		})
		r, err := Upload(t.Context(), v.client, local, "", o)
		if !errors.Is(err, ErrExists) || !once.Load() {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		wantText(t, v.path(name), "second, there")
		if _, err := os.Stat(v.path(name + " (1)")); err == nil {
			t.Error("a numbered file was made")
		}
	}
}

func TestAFolderReplacesOnlyWhatAnEarlierUploadPutThere(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	local := filepath.Join(t.TempDir(), "proj")
	o := Options{RecordDir: t.TempDir()}
	put := func() (Result, error) { return Upload(t.Context(), v.client, local, "", o) }
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
	if r, err := put(); err != nil || r.Skipped != r.Files || r.Files != 4 {
		t.Errorf("unchanged: %+v, %v", r, err)
	}
	edit("2")
	if r, err := put(); err != nil || r.Skipped != 0 {
		t.Errorf("edited here: %+v, %v", r, err)
	}
	sameTree(t, v.path("proj"), local)
	wantNames(t, v.dir, ".colab-relay", "proj")

	writeText(t, v.path("proj/b.py"), "edited on the VM")
	edit("3")
	writeText(t, filepath.Join(local, "fresh.py"), "fresh")
	r, err := put()
	if !errors.Is(err, ErrExists) || !strings.Contains(fmt.Sprint(err), `already on the VM with other content: "b.py"; `) {
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
	o.Overwrite = false
	edit("4")
	_, err = put()
	must(t, err)
	sameTree(t, v.path("proj"), local)

	other := Options{RecordDir: t.TempDir()}
	for i := range maxTaken + 2 {
		writeText(t, filepath.Join(local, "many", fmt.Sprint(i)), "here")
		writeText(t, v.path(fmt.Sprintf("proj/many/%d", i)), "there")
	}
	_, err = Upload(t.Context(), v.client, filepath.Join(local, "many"), v.path("proj/many"), other)
	if !errors.Is(err, ErrExists) || !strings.Contains(fmt.Sprint(err), `"0", "1", "2", "3", "4", and 2 more; `) {
		t.Errorf("one more than is named: %v", err)
	}
}

// A large file of the same size is compared when it is its turn.
func TestALargeFileOfAFolderThatIsAnotherIsKept(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	local := filepath.Join(t.TempDir(), "d")
	fill(t, filepath.Join(local, "big"), 2*contract.MaxBatchFile, 1)
	want := fill(t, v.path("d/big"), 2*contract.MaxBatchFile, 2)
	r, err := Upload(t.Context(), v.client, local, "", Options{RecordDir: t.TempDir()})
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
	want := map[string]string{"/content/a": strings.Repeat("a", 64)}
	if got := Uploaded(l.dir, "vm-1", "job"); !maps.Equal(got, want) {
		t.Errorf("uploaded to vm-1: %v", got)
	}
	for _, got := range []map[string]string{Uploaded(l.dir, "vm-1", "elsewhere"), Uploaded(l.dir, "vm-2", "job"), Uploaded(l.dir, "", "job"), Uploaded("", "vm-1", "job"), Uploaded(t.TempDir(), "vm-1", "job")} {
		if len(got) > 0 {
			t.Errorf("uploaded elsewhere: %v", got)
		}
	}
}

func TestTheRecordOfUploadsIsBounded(t *testing.T) {
	tier.Long(t)
	digest := strings.Repeat("a", 64)
	l := openLastUploads(t.TempDir())
	for i := range maxLastUploads + 1 {
		l.add("vm", fmt.Sprintf("/%d", i), digest, "")
		if i == maxLastUploads-1 {
			l.add("vm", "/1", digest, "") // again: it is newer than /0 now, and /0 still the oldest
		}
	}
	must(t, l.save())
	l = openLastUploads(l.dir)
	if l.digest("vm", "/0") != "" || l.digest("vm", "/1") == "" || l.digest("vm", "/2") == "" || l.digest("vm", fmt.Sprintf("/%d", maxLastUploads)) == "" || len(l.known) != maxLastUploads {
		t.Errorf("%d are recorded", len(l.known))
	}
	long := strings.Repeat("x", 16<<10)
	for i := range maxLastUploadsBytes / len(long) {
		l.add("vm", fmt.Sprintf("/%s%d", long, i), digest, "")
	}
	must(t, l.save())
	l = openLastUploads(l.dir)
	if l.digest("vm", "/1") != "" || len(l.known) == 0 || len(l.known) > maxLastUploadsBytes/len(long) {
		t.Errorf("of long paths, %d are recorded", len(l.known))
	}
}

func TestUploadsOfSeveralRelaysAreAllRecorded(t *testing.T) {
	dir, digest := t.TempDir(), strings.Repeat("a", 64)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			l := openLastUploads(dir)
			l.add("vm", fmt.Sprint(i), digest, "")
			if err := l.save(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l := openLastUploads(dir)
	for i := range 8 {
		if l.digest("vm", fmt.Sprint(i)) == "" {
			t.Errorf("the upload %d is lost", i)
		}
	}
}

// An upload succeeds although it cannot be recorded, and says so.
func TestAnUploadThatCannotBeRecordedSaysSo(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	dir := t.TempDir()
	local, file := filepath.Join(dir, "a"), filepath.Join(dir, "no folder")
	writeText(t, local, "a")
	writeText(t, file, "")
	r, err := Upload(t.Context(), v.client, local, "", Options{RecordDir: file})
	if err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "recording what was uploaded: ") || !strings.HasSuffix(r.Notes[0], "; a later upload of a changed version needs overwrite") {
		t.Errorf("%+v, %v", r, err)
	}
}

// A damaged record counts as empty, so nothing is replaced, and is kept under another name.
func TestADamagedRecordOfUploadsIsSetAside(t *testing.T) {
	digest := strings.Repeat("a", 64)
	damage.Files{
		Make: func(t testing.TB, dir string) {
			l := openLastUploads(dir)
			l.add("vm", "/content/a", digest, "")
			must(t, l.save())
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			l := openLastUploads(dir)
			found = l.digest("vm", "/content/a")
			l.add("vm", "/content/b", digest, "")
			if err := l.save(); err != nil {
				return found, err.Error()
			}
			if openLastUploads(dir).digest("vm", "/content/b") != digest {
				t.Error("a later upload is not recorded")
			}
			return found, lastUploadsFile
		},
		Damage:    []string{lastUploadsFile},
		Rewritten: []string{lastUploadsFile, lastUploadsFile + ".lock"},
	}.Test(t)
}

// On the VM the file got another name, and a link has its old one.
func TestAnUploadReplacesNothingThroughALink(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	dir := t.TempDir()
	local, o := filepath.Join(dir, "a.txt"), Options{RecordDir: t.TempDir()}
	for _, sent := range []string{local, dir} {
		at := v.path("one")
		if sent == dir {
			at = v.path("folder")
		}
		target := at + "/"
		if sent == dir {
			target = at
		}
		writeText(t, local, "first")
		_, err := Upload(t.Context(), v.client, sent, target, o)
		must(t, err)
		must(t, os.Rename(at+"/a.txt", at+"/b.txt"))
		must(t, os.Symlink("b.txt", at+"/a.txt"))
		writeText(t, local, "changed here")
		if r, err := Upload(t.Context(), v.client, sent, target, o); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "link") {
			t.Errorf("%q: %+v, %v", sent, r, err)
		}
		wantText(t, at+"/b.txt", "first")
		_, err = Upload(t.Context(), v.client, sent, target, Options{RecordDir: o.RecordDir, Overwrite: true})
		must(t, err)
		wantText(t, at+"/b.txt", "changed here")
	}
}

func TestAMissingLocalFileIsNamedOnce(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.py")
	_, err := Upload(t.Context(), nil, missing, "", Options{})
	if want := fmt.Sprintf("%q does not exist on this computer", missing); !errors.Is(err, fs.ErrNotExist) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
