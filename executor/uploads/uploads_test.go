package uploads

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
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
		SizeBytes: 100_000, SHA256: sha(data), Missing: []contract.Range{{Offset: 0, Length: 100_000}},
	}
	if diff := cmp.Diff(want, up); diff != "" {
		t.Fatalf("a new upload: %s", diff)
	}
	up = in.put(up.UploadID, 60_000, data[60_000:], true)
	want.ReceivedBytes, want.Missing = 40_000, []contract.Range{{Offset: 0, Length: 60_000}}
	if diff := cmp.Diff(want, up); diff != "" {
		t.Fatalf("with the end of the file: %s", diff)
	}
	if got, err := in.commit(up.UploadID); err != nil || got.Status != contract.UploadReceiving {
		t.Fatalf("committed early: %+v, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(in.Workdir, "fresh/deep/a.bin")); err == nil {
		t.Fatal("the file has its name before it is complete")
	}
	in.put(up.UploadID, 0, data[:60_000], true)
	for range 2 { // the answer may have been lost
		out, err := in.commit(up.UploadID)
		must(t, err)
		if out.Status != contract.UploadCommitted || out.Path != filepath.Join(in.Workdir, "fresh/deep/a.bin") {
			t.Fatalf("committed as %+v", out)
		}
	}
	in.holds("fresh/deep/a.bin", data)
	in.reopen()
	if out, err := in.commit(up.UploadID); err != nil || out.Status != contract.UploadCommitted {
		t.Fatalf("after a restart: %+v, %v", out, err)
	}
}

func TestAnEmptyFileIsUploaded(t *testing.T) {
	in := newInbox(t)
	up := in.start("empty", nil, false)
	if len(up.Missing) != 0 || up.Missing == nil {
		t.Fatalf("missing of an empty file is %#v", up.Missing)
	}
	_, err := in.commit(up.UploadID)
	must(t, err)
	in.holds("empty", nil)
}

func TestTheSameStartResumes(t *testing.T) {
	in := newInbox(t)
	data := body(1000)
	up := in.start("x", data, false)
	in.put(up.UploadID, 0, data[:400], true)
	in.put(up.UploadID, 500, data[500:700], false)
	want := []contract.Range{{Offset: 400, Length: 100}, {Offset: 700, Length: 300}}
	again := in.start("x", data, false)
	if diff := cmp.Diff(want, again.Missing); diff != "" || again.UploadID != up.UploadID {
		t.Fatalf("upload %q is resumed as %q; missing ranges: %s", up.UploadID, again.UploadID, diff)
	}
	in.reopen()
	if diff := cmp.Diff(again, in.start("x", data, false)); diff != "" {
		t.Fatalf("resumed after a restart: %s", diff)
	}
	in.put(up.UploadID, 400, data[400:], true)
	_, err := in.commit(up.UploadID)
	must(t, err)
	in.holds("x", data)
}

// A cut part counts as received. If the whole file is wrong, only cut parts are sent again.
func TestUnprovenBytesThatAreWrongAreSentAgain(t *testing.T) {
	in := newInbox(t)
	data := body(1000)
	up := in.start("x", data, false)
	in.put(up.UploadID, 0, data[:400], true)
	in.put(up.UploadID, 400, bytes.Repeat([]byte("!"), 200), false)
	in.put(up.UploadID, 600, data[600:], true)
	in.put(up.UploadID, 300, bytes.Repeat([]byte("?"), 300), false) // nothing of it is needed
	out, err := in.commit(up.UploadID)
	must(t, err)
	if want := []contract.Range{{Offset: 400, Length: 200}}; out.Status != contract.UploadReceiving || !slices.Equal(out.Missing, want) {
		t.Fatalf("a wrong whole is %+v, want %+v missing", out, want)
	}
	in.reopen()
	in.put(up.UploadID, 400, data[400:600], true)
	out, err = in.commit(up.UploadID)
	if err != nil || out.Status != contract.UploadCommitted {
		t.Fatalf("with correct bytes: %+v, %v", out, err)
	}
	in.holds("x", data)
}

func TestUnprovenBytesThatAreRightAreNotSentAgain(t *testing.T) {
	in := newInbox(t)
	data := body(1000)
	up := in.start("x", data, false)
	in.put(up.UploadID, 0, data[:500], false)
	in.put(up.UploadID, 500, data[500:], true)
	_, err := in.commit(up.UploadID)
	must(t, err)
	in.holds("x", data)
}

func TestProvenBytesReplaceUnprovenOnes(t *testing.T) {
	in := newInbox(t)
	data := body(1000)
	up := in.start("x", data, false)
	in.put(up.UploadID, 0, bytes.Repeat([]byte("!"), 1000), false)
	in.put(up.UploadID, 0, data, true)
	_, err := in.commit(up.UploadID)
	must(t, err)
	in.holds("x", data)
}

func TestAWrongFileIsRefusedAndStartsAgain(t *testing.T) {
	in := newInbox(t)
	data := body(1000)
	up := in.start("x", data, false)
	in.put(up.UploadID, 0, bytes.Repeat([]byte("!"), 1000), true)
	for range 2 { // the answer may have been lost
		if out, err := in.commit(up.UploadID); !errors.Is(err, ErrDigest) {
			t.Fatalf("wrong bytes: %+v, %v, want %v", out, err, ErrDigest)
		}
	}
	if _, err := in.Get(t.Context(), up.UploadID, 0); !errors.Is(err, ErrDigest) {
		t.Fatalf("a poll gets %v, want %v", err, ErrDigest)
	}
	if again := in.start("x", data, false); again.ReceivedBytes != 0 {
		t.Fatalf("after that it holds %d bytes", again.ReceivedBytes)
	}
	in.put(up.UploadID, 0, data, true)
	_, err := in.commit(up.UploadID)
	must(t, err)
	in.holds("x", data)
}

func TestRangesOutsideTheFileAreRefused(t *testing.T) {
	in := newInbox(t)
	up := in.start("x", body(100), false)
	for name, offset := range map[string]int64{"below": -1, "at the end": 100, "over the end": 95, "overflow": 1<<63 - 3} {
		t.Run(name, func(t *testing.T) {
			if _, err := in.Put(up.UploadID, offset, body(10), true); !errors.Is(err, files.ErrBadRange) {
				t.Fatalf("error is %v, want %v", err, files.ErrBadRange)
			}
		})
	}
	if out := in.put(up.UploadID, 100, nil, true); out.ReceivedBytes != 0 {
		t.Fatalf("an empty body counts as %d bytes", out.ReceivedBytes)
	}
}

func TestUnknownAndUnusableUploadsAreRefused(t *testing.T) {
	in := newInbox(t)
	_, err := in.Put("0123", 0, nil, true)
	if !errors.Is(err, ErrNoUpload) {
		t.Errorf("put: %v", err)
	}
	if _, err := in.Get(t.Context(), "../..", 0); !errors.Is(err, ErrNoUpload) {
		t.Errorf("get: %v", err)
	}
	if _, err := in.commit(""); !errors.Is(err, ErrNoUpload) {
		t.Errorf("commit: %v", err)
	}
	good := contract.UploadStart{Path: "x", SHA256: sha(nil)}
	for name, change := range map[string]func(*contract.UploadStart){
		"negative size":     func(s *contract.UploadStart) { s.SizeBytes = -1 },
		"no digest":         func(s *contract.UploadStart) { s.SHA256 = "" },
		"upper-case digest": func(s *contract.UploadStart) { s.SHA256 = "A" + s.SHA256[1:] },
		"digest and more":   func(s *contract.UploadStart) { s.SHA256 += "\n" },
	} {
		s := good
		change(&s)
		if _, err := in.Start(s); !errors.Is(err, ErrBadUpload) {
			t.Errorf("%s: %v, want %v", name, err, ErrBadUpload)
		}
	}
}
