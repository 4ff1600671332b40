package uploads

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		SizeBytes: 100_000, Missing: []contract.Range{{Offset: 0, Length: 100_000}},
	}
	if diff := cmp.Diff(want, up); diff != "" {
		t.Fatalf("a new upload: %s", diff)
	}
	up = in.put(up.UploadID, 60_000, data[60_000:])
	want.ReceivedBytes, want.Missing = 40_000, []contract.Range{{Offset: 0, Length: 60_000}}
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
		if out.Status != contract.UploadCommitted || out.Path != filepath.Join(in.Workdir, "fresh/deep/a.bin") || out.SHA256 != sha(data) {
			t.Fatalf("committed as %+v", out)
		}
	}
	in.holds("fresh/deep/a.bin", data)
	in.reopen()
	if out, err := in.commit(up.UploadID, data); err != nil || out.Status != contract.UploadCommitted {
		t.Fatalf("after a restart: %+v, %v", out, err)
	}
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
		last, err = in.Start(start)
		must(t, err)
		in.put(last.UploadID, 0, body(50))
	}
	if parts := in.parts(in.Workdir); len(parts) != 4 { // all but the first, of which there is a newer version
		t.Errorf("there are %q", parts)
	}
	in.reopen()
	must(t, in.Drop(last.UploadID))
	if _, err := in.tryPut(last.UploadID, 50, body(50)); !errors.Is(err, ErrNoUpload) {
		t.Errorf("after it was deleted: %v", err)
	}
	if parts := in.parts(in.Workdir); len(parts) != 3 {
		t.Errorf("then there are %q", parts)
	}
}

func TestUnknownAndUnusableUploadsAreRefused(t *testing.T) {
	in := newInbox(t)
	_, err := in.tryPut("0123", 0, nil)
	if !errors.Is(err, ErrNoUpload) {
		t.Errorf("put: %v", err)
	}
	if _, err := in.Get(t.Context(), "../..", 0); !errors.Is(err, ErrNoUpload) {
		t.Errorf("get: %v", err)
	}
	if _, err := in.commit("", nil); !errors.Is(err, ErrNoUpload) {
		t.Errorf("commit: %v", err)
	}
	for name, offset := range map[string]int64{"below": -1, "over the end": 95, "overflow": 1<<63 - 3} {
		if _, err := in.tryPut(in.start("part", body(100), false).UploadID, offset, body(10)); !errors.Is(err, files.ErrBadRange) {
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
		if _, err := in.Start(s); !errors.Is(err, ErrBadUpload) {
			t.Errorf("%s: %v, want %v", name, err, ErrBadUpload)
		}
	}
	good.Version = strings.Repeat("v", contract.MaxUploadVersion)
	up, err := in.Start(good)
	must(t, err)
	for _, sum := range []string{"", "A" + sha(nil)[1:], sha(nil) + "\n"} {
		if _, err := in.Commit(t.Context(), up.UploadID, sum, timeout); !errors.Is(err, ErrBadUpload) {
			t.Errorf("commit with the SHA-256 %q: %v, want %v", sum, err, ErrBadUpload)
		}
	}
}
