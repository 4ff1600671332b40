package api

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
)

func TestAFileIsReadInPartsByItsETag(t *testing.T) {
	s := newFileStand(t)
	const name = "two words, \"quotes\" and ünïcode\n.bin"
	content := noise(contract.MaxFilePart + 12345)
	s.write(name, content)
	st := s.stat(name, "")
	if st.SizeBytes != int64(len(content)) || st.ETag == "" || st.SHA256 != "" || st.Hashing != nil {
		t.Fatalf("stat without a digest is %+v", st)
	}
	if st = s.stat(name, "&digest=1&wait_seconds=10"); st.SHA256 != sum(content) {
		t.Fatalf("stat with a digest is %+v", st)
	}
	var whole []byte
	for len(whole) < len(content) {
		res := s.call("GET", contentPath(name, st.ETag, int64(len(whole)), contract.MaxFilePart), nil)
		if res.StatusCode != http.StatusOK || len(res.body) == 0 {
			t.Fatalf("a part at %d: %d %.200s", len(whole), res.StatusCode, res.body)
		}
		whole = append(whole, res.body...)
	}
	if !bytes.Equal(whole, content) {
		t.Fatal("not the same bytes")
	}
	if res := s.call("GET", contentPath(name, st.ETag, 100, 50), nil); !bytes.Equal(res.body, content[100:150]) {
		t.Errorf("a piece of 50 bytes is %d bytes", len(res.body))
	}
}

func TestAnEmptyFileIsServedAndUploaded(t *testing.T) {
	s := newFileStand(t)
	s.write("empty", nil)
	st := s.stat("empty", "&digest=1&wait_seconds=10")
	if res := s.call("GET", contentPath("empty", st.ETag, 0, 10), nil); res.StatusCode != http.StatusOK || len(res.body) != 0 {
		t.Errorf("content is %d %q", res.StatusCode, res.body)
	}
	s.wantFile(s.commit(s.start("another", nil).UploadID, nil), nil)
}

func TestAFileThatChangedIsNotServedUnderItsOldETag(t *testing.T) {
	s := newFileStand(t)
	s.write("a", []byte("before"))
	etag := s.stat("a", "").ETag
	s.write("a", []byte("after, and longer"))
	s.call("GET", contentPath("a", etag, 0, 100), nil).want(t, http.StatusPreconditionFailed, contract.CodeChanged)
	if err := os.Remove(filepath.Join(s.work, "a")); err != nil {
		t.Fatal(err)
	}
	s.call("GET", contentPath("a", etag, 0, 100), nil).want(t, http.StatusNotFound, contract.CodeNotFound)
}

func TestTheBoundsOfTransferRequestsAreChecked(t *testing.T) {
	s := newFileStand(t)
	s.write("a", []byte("hello"))
	etag := s.stat("a", "").ETag
	if res := s.call("GET", contentPath("a", etag, 0, contract.MaxFilePart), nil); string(res.body) != "hello" {
		t.Errorf("a part at the bound: %d %s", res.StatusCode, res.body)
	}
	s.call("GET", contentPath("a", strings.Repeat("x", maxETagLen), 0, 1), nil).want(t, http.StatusPreconditionFailed, contract.CodeChanged)
	if res := s.call("POST", contract.PathUploads, contract.UploadStart{Path: "d", SizeBytes: 1, Version: strings.Repeat("v", contract.MaxUploadVersion)}); res.StatusCode != http.StatusOK {
		t.Errorf("a version at the bound: %d %s", res.StatusCode, res.body)
	}
	id := s.start("b", []byte("hello")).UploadID
	for _, tc := range []struct{ method, path, names string }{
		{"GET", contentPath("a", etag, 0, contract.MaxFilePart+1), "length"},
		{"GET", contentPath("a", etag, 0, 0), "length"},
		{"GET", contentPath("a", etag, -1, 1), "offset"},
		{"GET", contentPath("a", "", 0, 1), "etag"},
		{"GET", contentPath("a", strings.Repeat("x", maxETagLen+1), 0, 1), "etag"},
		{"GET", contract.PathStat + "?path=a&digest=yes", "digest"},
		{"GET", contract.PathStat + "?path=a&digest=1&wait_seconds=51", "wait_seconds"},
		{"GET", contract.PathUploads + "/" + id + "?wait_seconds=51", "wait_seconds"},
		{"POST", contract.PathUploads + "/" + id + "/commit?wait_seconds=51", "wait_seconds"},
		{"PUT", putPath(id, -1, 0), "offset"},
		{"PUT", putPath(id, 0, -1), "length"},
	} {
		e := s.call(tc.method, tc.path, nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
		if !strings.HasPrefix(e.Message, tc.names) {
			t.Errorf("%s %.80s: message is %q, want it to name %q", tc.method, tc.path, e.Message, tc.names)
		}
	}
	for _, start := range []contract.UploadStart{
		{Path: "c", SizeBytes: -1, Version: "v"},
		{Path: "c", SizeBytes: 1, Version: strings.Repeat("v", contract.MaxUploadVersion+1)},
		{Path: "c", SizeBytes: 1},
	} {
		s.call("POST", contract.PathUploads, start).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	}
}

func TestHostilePathsAreRefusedByEveryTransfer(t *testing.T) {
	s := newFileStand(t)
	s.write("a", []byte("hello"))
	etag := s.stat("a", "").ETag
	outside := filepath.Dir(s.work)
	for link, target := range map[string]string{"out": outside, "etc": "/etc", "null": "/dev/null"} {
		if err := os.Symlink(target, filepath.Join(s.work, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"..", "../etc/passwd", "a/../../state", "/etc/passwd", outside + "/state", "out/state", "etc/passwd", "/proc/self/mem", "null"} {
		for what, res := range map[string]reply{
			"stat":    s.call("GET", contract.PathStat+"?path="+url.QueryEscape(path), nil),
			"content": s.call("GET", contentPath(path, etag, 0, 10), nil),
			"upload":  s.call("POST", contract.PathUploads, contract.UploadStart{Path: path + "/x", SizeBytes: 1, Version: "v"}),
		} {
			if e := res.error(t); e.Code != contract.CodeForbiddenPath {
				t.Errorf("%s of %q: %d %+v", what, path, res.StatusCode, e)
			}
		}
	}
}

func TestOnlyRegularFilesHaveContent(t *testing.T) {
	s := newFileStand(t)
	s.write("a", []byte("hello"))
	etag := s.stat("a", "").ETag
	if err := os.Mkdir(filepath.Join(s.work, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(s.work, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.call("GET", contentPath("folder", etag, 0, 10), nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	s.call("GET", contentPath("fifo", etag, 0, 10), nil).want(t, http.StatusForbidden, contract.CodeForbiddenPath)
	if st := s.stat("folder", ""); !st.IsDir || st.ETag != "" {
		t.Errorf("stat of a folder is %+v", st)
	}
}

func TestTransfersThatWaitTakeASlotForLongPolls(t *testing.T) {
	s := newFileStand(t)
	s.write("a", []byte("hello"))
	id := s.start("b", []byte("hello")).UploadID
	for n := range 2 * maxWaiting { // each as another caller
		done, ok := s.api.waiting.take(caller(n))
		if !ok {
			t.Fatal("no slot is free")
		}
		defer done()
	}
	for _, ask := range []struct {
		method, path string
		body         any
	}{
		{"GET", contract.PathStat + "?path=a&digest=1", nil},
		{"GET", contract.PathUploads + "/" + id + "?", nil},
		{"POST", contract.PathUploads + "/" + id + "/commit?", contract.UploadCommit{SHA256: sum(nil)}},
	} {
		if res := s.call(ask.method, ask.path, ask.body); res.StatusCode != http.StatusOK {
			t.Errorf("%s %s without a wait: %d %s", ask.method, ask.path, res.StatusCode, res.body)
		}
		s.call(ask.method, ask.path+"&wait_seconds=1", ask.body).want(t, http.StatusServiceUnavailable, contract.CodeRateLimited)
	}
}

func TestListingContinuesAfterAName(t *testing.T) {
	s := newFileStand(t)
	for i := range 5 {
		s.write(fmt.Sprintf("f%d", i), nil)
	}
	out := into[contract.Files](s.stand, s.call("GET", contract.PathFiles+"?after=f2", nil))
	if len(out.Files) != 2 || out.Files[0].Name != "f3" {
		t.Errorf("files are %+v", out)
	}
}
