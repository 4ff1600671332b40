package uploads

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

func TestAFileHasItsNameOnceAllItsBytesHaveArrived(t *testing.T) {
	in := newInbox(t)
	data := body(100_000)
	up := in.start("fresh/deep/a.bin", data, false)
	want := contract.Upload{
		UploadID: up.UploadID, Status: contract.UploadReceiving, Path: filepath.Join(in.Workdir, "fresh/deep/a.bin"),
		Missing: []contract.Range{{Offset: 0, Length: 100_000}},
	}
	if diff := cmp.Diff(want, up); diff != "" {
		t.Fatalf("a new upload: %s", diff)
	}
	in.put(up.UploadID, 60_000, data[60_000:])
	up = in.start("fresh/deep/a.bin", data, false)
	want.Missing = []contract.Range{{Offset: 0, Length: 60_000}}
	if diff := cmp.Diff(want, up); diff != "" {
		t.Fatalf("with the end of the file: %s", diff)
	}
	if got, err := in.commit(up.UploadID, data); err != nil || got.Status != contract.UploadReceiving {
		t.Fatalf("committed early: %+v, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(in.Workdir, "fresh/deep/a.bin")); err == nil {
		t.Fatal("the file has its name before it is complete")
	}
	in.put(up.UploadID, 0, data[:60_000])
	for range 2 { // the answer may have been lost
		out, err := in.commit(up.UploadID, data)
		must(t, err)
		if out.Status != contract.UploadCommitted || out.Path != filepath.Join(in.Workdir, "fresh/deep/a.bin") {
			t.Fatalf("committed as %+v", out)
		}
	}
	in.holds("fresh/deep/a.bin", data)
	in.folders(0)
}

func TestTheSameStartResumes(t *testing.T) {
	in := newInbox(t)
	data := body(1000)
	up := in.start("x", data, false)
	in.put(up.UploadID, 0, data[:400])
	in.put(up.UploadID, 500, data[500:700])
	want := []contract.Range{{Offset: 400, Length: 100}, {Offset: 700, Length: 300}}
	again := in.start("x", data, false)
	if diff := cmp.Diff(want, again.Missing); diff != "" || again.UploadID != up.UploadID {
		t.Fatalf("upload %q is resumed as %q; missing ranges: %s", up.UploadID, again.UploadID, diff)
	}
	in.reopen()
	if diff := cmp.Diff(again, in.start("x", data, false)); diff != "" {
		t.Fatalf("resumed after a restart: %s", diff)
	}
	in.put(up.UploadID, 400, data[400:])
	_, err := in.commit(up.UploadID, data)
	must(t, err)
	in.holds("x", data)
}

// Nobody can resume an upload of a file that is another now, or that its sender gave up.
func TestWhatNobodyResumesIsDeleted(t *testing.T) {
	in := newInbox(t)
	var last contract.Upload
	for _, start := range []contract.UploadStart{{Version: "1", Source: "a"}, {Version: "2", Source: "a"}, {Version: "1", Source: "b"}, {Version: "1"}, {Version: "2"}} {
		start.Path, start.SizeBytes = "x", 100
		var err error
		last, err = in.begin(start)
		must(t, err)
		in.put(last.UploadID, 0, body(50))
	}
	if parts := in.parts(in.Workdir); len(parts) != 4 { // all but the first, of which there is a newer version
		t.Errorf("there are %q", parts)
	}
	in.reopen()
	must(t, in.Drop(last.UploadID))
	if err := in.tryPut(last.UploadID, 50, body(50)); !errors.Is(err, ErrNoUpload) {
		t.Errorf("after it was deleted: %v", err)
	}
	if parts := in.parts(in.Workdir); len(parts) != 3 {
		t.Errorf("then there are %q", parts)
	}
}

func TestUnknownAndUnusableUploadsAreRefused(t *testing.T) {
	in := newInbox(t)
	err := in.tryPut("0123", 0, nil)
	if !errors.Is(err, ErrNoUpload) {
		t.Errorf("put: %v", err)
	}
	if _, err := in.begin(contract.UploadStart{Path: "x", Version: "v", SHA256: sha(nil)}); !errors.Is(err, ErrNoUpload) {
		t.Errorf("commit: %v", err)
	}
	for name, offset := range map[string]int64{"below": -1, "over the end": 95, "overflow": 1<<63 - 3} {
		if err := in.tryPut(in.start("part", body(100), false).UploadID, offset, body(10)); !errors.Is(err, files.ErrBadRange) {
			t.Errorf("bytes %s: %v, want %v", name, err, files.ErrBadRange)
		}
	}
	good := contract.UploadStart{Path: "x", Version: "v"}
	for name, change := range map[string]func(*contract.UploadStart){
		"negative size":          func(s *contract.UploadStart) { s.SizeBytes = -1 },
		"no version":             func(s *contract.UploadStart) { s.Version = "" },
		"a version that is long": func(s *contract.UploadStart) { s.Version = strings.Repeat("v", contract.MaxUploadVersion+1) },
	} {
		s := good
		change(&s)
		if _, err := in.begin(s); !errors.Is(err, ErrBadUpload) {
			t.Errorf("%s: %v, want %v", name, err, ErrBadUpload)
		}
	}
	good.Version = strings.Repeat("v", contract.MaxUploadVersion)
	_, err = in.begin(good)
	must(t, err)
	for _, sum := range []string{"A" + sha(nil)[1:], sha(nil) + "\n"} {
		good.SHA256 = sum
		if _, err := in.begin(good); !errors.Is(err, ErrBadUpload) {
			t.Errorf("commit with the SHA-256 %q: %v, want %v", sum, err, ErrBadUpload)
		}
	}
}

// pack makes a batch of files below folder.
func pack(folder string, files map[string][]byte) (contract.Manifest, []byte) {
	m := contract.Manifest{Path: folder}
	var all []byte
	for _, name := range sortedKeys(files) {
		f := contract.ManifestFile{Name: name, SizeBytes: int64(len(files[name]))}
		if !strings.HasSuffix(name, "/") {
			f.SHA256 = sha(files[name])
		}
		m.Files = append(m.Files, f)
		all = append(all, files[name]...)
	}
	return m, all
}

func sortedKeys(files map[string][]byte) []string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// batched is the result for one file of a batch.
type batched struct {
	contract.BatchedFile
	Err error
}

func (in *inbox) batch(m contract.Manifest, bytes []byte) []batched {
	in.t.Helper()
	errs := map[*contract.Error]error{}
	out, err := in.Batch(in.t.Context(), m, bytes, func(err error) *contract.Error {
		e := new(contract.Error)
		errs[e] = err
		return e
	})
	must(in.t, err)
	if len(out) != len(m.Files) {
		in.t.Fatalf("%d answers about %d files", len(out), len(m.Files))
	}
	all := make([]batched, len(out))
	for i, one := range out {
		all[i] = batched{one, errs[one.Error]}
	}
	return all
}

func TestABatchStoresEachFileAndMayBeRepeated(t *testing.T) {
	in := newInbox(t)
	m, bytes := pack("data", map[string][]byte{
		"one": body(1000), "zero": {}, "new/deep/two": body(7), "empty/": nil, `odd\xff`: body(3),
	})
	first := in.batch(m, bytes)
	for i, want := range []string{"empty", "new/deep/two", `odd\xff`, "one", "zero"} {
		if first[i].Err != nil || first[i].Path != filepath.Join(in.Workdir, "data", want) {
			t.Errorf("%q: %+v", want, first[i])
		}
	}
	in.holds("data/one", body(1000))
	in.holds("data/new/deep/two", body(7))
	in.holds("data/odd\xff", body(3))
	before := everything(t, in.Workdir)
	if again := in.batch(m, bytes); !slices.Equal(again, first) {
		t.Errorf("again: %+v, first %+v", again, first)
	}
	in.reopen()
	if again := in.batch(m, bytes); !slices.Equal(again, first) {
		t.Errorf("after a restart: %+v, first %+v", again, first)
	}
	if after := everything(t, in.Workdir); after != before {
		t.Errorf("there is now\n%s\nand was\n%s", after, before)
	}
	in.folders(0)
}

// Each of these files fails, and the other one in its batch is stored.
func TestAHostileFileDoesNotAffectTheOthersInABatch(t *testing.T) {
	in := newInbox(t)
	base := filepath.Dir(in.Workdir)
	must(t, syscall.Mkfifo(filepath.Join(in.Workdir, "fifo"), 0o600))
	before := strings.Split(everything(t, base), "\n")
	for name, want := range map[string]error{
		"../x": files.ErrForbidden, "a/../../x": files.ErrForbidden, "out/x": files.ErrForbidden, "to-state/x": files.ErrForbidden,
		".x" + files.PartSuffix: files.ErrForbidden, "data": files.ErrIsDir, "fifo": files.ErrNotRegular, "a.txt": ErrTaken, "out/": files.ErrForbidden,
	} {
		m, bytes := pack(in.Workdir, map[string][]byte{name: body(10), "good": body(20)})
		if strings.HasSuffix(name, "/") {
			m, bytes = pack(in.Workdir, map[string][]byte{name: nil, "good": body(20)})
		}
		for i, f := range in.batch(m, bytes) {
			switch good := m.Files[i].Name == "good"; {
			case good && f.Err != nil:
				t.Errorf("beside %.20q: %v", name, f.Err)
			case !good && !errors.Is(f.Err, want):
				t.Errorf("%.20q: %+v, want %v", name, f, want)
			}
		}
	}
	in.holds("good", body(20))
	must(t, os.Remove(filepath.Join(in.Workdir, "good")))
	if after := strings.Split(everything(t, base), "\n"); !slices.Equal(after, before) {
		t.Errorf("there is now %q, and was %q", after, before)
	}
}

func TestBytesOfABatchWithAnotherDigestAreRefused(t *testing.T) {
	in := newInbox(t)
	m, bytes := pack("data", map[string][]byte{"one": body(100), "two": body(50)})
	bytes[3]++
	if out := in.batch(m, bytes); !errors.Is(out[0].Err, ErrDigest) || out[1].Err != nil {
		t.Errorf("%+v", out)
	}
	if exists(filepath.Join(in.Workdir, "data/one")) {
		t.Error("a wrong file is there")
	}
	in.holds("data/two", body(50))
}

// An executor deletes the part file that a killed one has left, and nothing else.
func TestThePartFileOfAKilledBatchIsDeleted(t *testing.T) {
	in := newInbox(t)
	in.stop()
	start := contract.UploadStart{Path: "data", Version: "v"}
	part, other := partName(start), ".other"+files.PartSuffix
	for _, dir := range []string{filepath.Join(in.Workdir, "data"), in.Secret} {
		for _, name := range []string{part, other} {
			must(t, os.WriteFile(filepath.Join(dir, name), body(10), 0o600))
		}
		left := record{UploadStart: start, Folder: []byte(dir), Name: []byte("x"), Batch: true}
		must(t, writeJSON(filepath.Join(in.State, "uploads", newUploadID()+recordSuffix), left))
	}
	in.open()
	if exists(filepath.Join(in.Workdir, "data", part)) {
		t.Error("the part is still there")
	}
	for _, path := range []string{filepath.Join(in.Workdir, "data", other), filepath.Join(in.Secret, part)} {
		if !exists(path) {
			t.Errorf("%q is gone", path)
		}
	}
	in.folders(0)
}

// folders checks the number of uploads in the state dir.
func (in *inbox) folders(want int) {
	in.t.Helper()
	entries, err := os.ReadDir(filepath.Join(in.State, "uploads"))
	must(in.t, err)
	if len(entries) != want {
		in.t.Errorf("%d uploads are in the state dir, want %d", len(entries), want)
	}
}

func TestUnusedUploadsAreDropped(t *testing.T) {
	in := newInbox(t)
	in.send("done", body(10), false)
	old := in.start("old", body(100), false)
	in.put(old.UploadID, 0, body(50))
	in.stop()
	long := time.Now().Add(-keepUploads - time.Hour)
	must(t, os.Chtimes(filepath.Join(in.State, "uploads", old.UploadID+recordSuffix), long, long))
	young := in.start("young", body(100), false)
	in.open()
	if err := in.tryPut(old.UploadID, 0, nil); !errors.Is(err, ErrNoUpload) {
		t.Errorf("an old upload: %v, want %v", err, ErrNoUpload)
	}
	if err := in.tryPut(young.UploadID, 0, nil); err != nil {
		t.Errorf("a young upload: %v", err)
	}
	in.folders(1)
	if n := len(in.parts(in.Workdir)); n != 1 {
		t.Errorf("%d parts are there, want 1", n)
	}
	must(t, os.Remove(in.parts(in.Workdir)[0]))
	in.holds("done", body(10))
}
