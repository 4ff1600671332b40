package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"colabrelay/executor/files"
	"colabrelay/executor/uploads"
	"colabrelay/shared/contract"
)

// fileStand is an API over real files, without a kernel.
type fileStand struct {
	*stand
	work string
}

func newFileStand(t testing.TB) fileStand {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := fileStand{newStand(t), filepath.Join(base, "work")}
	state, temp := filepath.Join(base, "state"), filepath.Join(base, "tmp")
	for _, dir := range []string{s.work, state, temp} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", temp) // so that base itself is not a root
	var b Backend
	if b.Files, err = files.Open(s.work, nil, state); err != nil {
		t.Fatal(err)
	}
	b.Digests = files.NewDigests(b.Files)
	if b.Uploads, err = uploads.Open(b.Files, filepath.Join(state, "uploads")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return b.Digests.Run(ctx) })
	g.Go(func() error { return b.Uploads.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	s.api.Attach(b)
	return s
}

func (s fileStand) write(name string, content []byte) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.work, name), content, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s fileStand) stat(name, more string) contract.FileStat {
	s.t.Helper()
	return into[contract.FileStat](s.stand, s.call("GET", contract.PathStat+"?path="+url.QueryEscape(name)+more, nil))
}

func contentPath(name, etag string, offset, length int64) string {
	query := url.Values{"path": {name}, "etag": {etag}}
	query.Set("offset", strconv.FormatInt(offset, 10))
	query.Set("length", strconv.FormatInt(length, 10))
	return contract.PathContent + "?" + query.Encode()
}

func (s fileStand) start(name string, content []byte) contract.Upload {
	s.t.Helper()
	return into[contract.Upload](s.stand, s.call("POST", contract.PathUploads, contract.UploadStart{
		Path: name, SizeBytes: int64(len(content)), SHA256: sum(content),
	}))
}

func (s fileStand) put(id string, offset int, body []byte) reply {
	s.t.Helper()
	return s.signed(s.request("PUT", putPath(id, offset), body), body)
}

func putPath(id string, offset int) string {
	return contract.PathUploads + "/" + id + "?offset=" + strconv.Itoa(offset)
}

func (s fileStand) upload(id string) contract.Upload {
	s.t.Helper()
	return into[contract.Upload](s.stand, s.call("GET", contract.PathUploads+"/"+id, nil))
}

// commit requests the commit and waits for its end.
func (s fileStand) commit(id string) contract.Upload {
	s.t.Helper()
	for {
		u := into[contract.Upload](s.stand, s.call("POST", contract.PathUploads+"/"+id+"/commit?wait_seconds=10", nil))
		if u.Status != contract.UploadHashing {
			return u
		}
	}
}

// wantFile checks that the upload is committed, and the content of its file.
func (s fileStand) wantFile(u contract.Upload, content []byte) {
	s.t.Helper()
	got, err := os.ReadFile(u.Path)
	if err != nil || u.Status != contract.UploadCommitted || !bytes.Equal(got, content) {
		s.t.Fatalf("%d bytes of %d are in place, upload %+v: %v", len(got), len(content), u, err)
	}
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

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
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/octet-stream" || len(res.body) == 0 {
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
	s.wantFile(s.commit(s.start("another", nil).UploadID), nil)
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
		{"PUT", putPath(id, -1), "offset"},
	} {
		e := s.call(tc.method, tc.path, nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
		if !strings.HasPrefix(e.Message, tc.names) {
			t.Errorf("%s %.80s: message is %q, want it to name %q", tc.method, tc.path, e.Message, tc.names)
		}
	}
	for _, start := range []contract.UploadStart{
		{Path: "c", SizeBytes: -1, SHA256: sum(nil)},
		{Path: "c", SizeBytes: 1, SHA256: strings.ToUpper(sum([]byte("x")))},
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
			"upload":  s.call("POST", contract.PathUploads, contract.UploadStart{Path: path + "/x", SizeBytes: 1, SHA256: sum([]byte("x"))}),
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

func TestContentIsCompressedIfASampleCompressesWell(t *testing.T) {
	s := newFileStand(t)
	text := []byte(strings.Repeat("a line of a log, like many others\n", 20_000))
	random := noise(len(text))
	hexed := []byte(hex.EncodeToString(noise(len(text) / 2)))
	for name, tc := range map[string]struct {
		content []byte
		gzip    bool
	}{
		"text":             {text, true},
		"noise":            {random, false},
		"hex":              {hexed, true}, // to about 60 %
		"noise, then text": {append(random[:sampleBytes:sampleBytes], text...), false},
		"text, then noise": {append(text[:sampleBytes:sampleBytes], random...), false},
		"a short text":     {text[:5000], true},
		"short noise":      {random[:5000], false},
	} {
		s.write("f", tc.content)
		req := s.request("GET", contentPath("f", s.stat("f", "").ETag, 0, contract.MaxFilePart), nil)
		req.Header.Set("Accept-Encoding", "gzip")
		res := s.signed(req, nil)
		packed := res.Header.Get("Content-Encoding") == "gzip"
		if packed != tc.gzip {
			t.Errorf("%s: compressed %v", name, packed)
		}
		if packed {
			res.body = unzip(t, res.body)
		}
		if !bytes.Equal(res.body, tc.content) {
			t.Errorf("%s: not the same bytes", name)
		}
	}
}

func TestAFileIsUploadedInPartsInAnyOrder(t *testing.T) {
	s := newFileStand(t)
	content := noise(100_000)
	u := s.start("made/on the way/a.bin", content)
	if u.Status != contract.UploadReceiving || u.ReceivedBytes != 0 {
		t.Fatalf("upload is %+v", u)
	}
	s.put(u.UploadID, 60_000, content[60_000:])
	if early := s.commit(u.UploadID); early.Status != contract.UploadReceiving || len(early.Missing) != 1 || early.Missing[0] != (contract.Range{Length: 60_000}) {
		t.Errorf("a commit of the half is %+v", early)
	}
	if again := s.start("made/on the way/a.bin", content); again.UploadID != u.UploadID || again.ReceivedBytes != 40_000 {
		t.Errorf("begun again it is %+v", again)
	}
	if after := into[contract.Upload](s.stand, s.put(u.UploadID, 0, content[:60_000])); after.ReceivedBytes != 100_000 {
		t.Errorf("upload is %+v", after)
	}
	done := s.commit(u.UploadID)
	s.wantFile(done, content)
	if again := s.commit(u.UploadID); again.Status != contract.UploadCommitted || again.Path != done.Path {
		t.Errorf("committed again it is %+v", again)
	}
}

func TestTheSizeAndEncodingOfAPartAreChecked(t *testing.T) {
	s := newFileStand(t)
	content := make([]byte, contract.MaxFilePart+1)
	u := s.start("a", content)
	for _, chunked := range []bool{false, true} {
		ask := func(body []byte) reply {
			req := s.request("PUT", putPath(u.UploadID, 0), body)
			if chunked {
				req.ContentLength = -1
			}
			return s.signed(req, body)
		}
		if e := ask(content).want(t, http.StatusRequestEntityTooLarge, contract.CodeTooLarge); !strings.Contains(e.Hint, "parts") {
			t.Errorf("chunked %v: hint is %q", chunked, e.Hint)
		}
		if got := into[contract.Upload](s.stand, ask(content[1:])); got.ReceivedBytes != contract.MaxFilePart {
			t.Errorf("chunked %v: at the bound it is %+v", chunked, got)
		}
	}
	packed := zip(t, content[:1])
	req := s.request("PUT", putPath(u.UploadID, contract.MaxFilePart), packed)
	req.Header.Set("Content-Encoding", "gzip")
	s.signed(req, packed)
	s.wantFile(s.commit(u.UploadID), content)
}

func TestUnknownUploadsAreNotFound(t *testing.T) {
	s := newFileStand(t)
	for _, id := range []string{strings.Repeat("0", 64), "nothing", "a.b", "..%2f..%2fkey", strings.Repeat("a", 65)} {
		path := contract.PathUploads + "/" + id
		s.call("GET", path, nil).want(t, http.StatusNotFound, contract.CodeNotFound)
		s.call("PUT", path+"?offset=0", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
		s.call("POST", path+"/commit", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
	}
}

func TestTransfersThatWaitTakeASlotForLongPolls(t *testing.T) {
	s := newFileStand(t)
	s.write("a", []byte("hello"))
	id := s.start("b", []byte("hello")).UploadID
	for n := range 2 * maxWaiting { // each as another caller
		done, err := s.api.wait(withCaller(s.request("GET", "/", nil), caller(n)))
		if err != nil {
			t.Fatal(err)
		}
		defer done()
	}
	for _, ask := range [][2]string{
		{"GET", contract.PathStat + "?path=a&digest=1"},
		{"GET", contract.PathUploads + "/" + id + "?"},
		{"POST", contract.PathUploads + "/" + id + "/commit?"},
	} {
		if res := s.call(ask[0], ask[1], nil); res.StatusCode != http.StatusOK {
			t.Errorf("%s %s without a wait: %d %s", ask[0], ask[1], res.StatusCode, res.body)
		}
		s.call(ask[0], ask[1]+"&wait_seconds=1", nil).want(t, http.StatusServiceUnavailable, contract.CodeRateLimited)
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
