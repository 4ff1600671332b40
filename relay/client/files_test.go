package client

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/seal"
)

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// newFile is an executor with one file, the etag of which is "e".
func newFile(t testing.TB, content []byte) *executor {
	return newExecutor(t, func(s seen) (int, any) {
		query, err := url.ParseQuery(s.query)
		if err != nil || s.method != http.MethodGet || s.path != contract.PathContent {
			return http.StatusBadRequest, refusalBody(contract.CodeBadRequest)
		}
		if query.Get("etag") != "e" || query.Get("path") != "f" {
			return http.StatusPreconditionFailed, refusalBody(contract.CodeChanged)
		}
		offset, _ := strconv.Atoi(query.Get("offset"))
		length, _ := strconv.Atoi(query.Get("length"))
		return http.StatusOK, append([]byte{}, content[min(offset, len(content)):min(offset+length, len(content))]...)
	})
}

// fetch is Content into memory.
func fetch(t testing.TB, c *Client, p Part, length int) ([]byte, error) {
	t.Helper()
	var got bytes.Buffer
	n, err := c.Content(t.Context(), p, int64(length), &got)
	if n != int64(got.Len()) {
		t.Errorf("%d bytes were written, and %d reported", got.Len(), n)
	}
	return got.Bytes(), err
}

// cutAfter hangs up after n bytes of each answer's body.
func cutAfter(n int) func(http.ResponseWriter, *httptest.ResponseRecorder) bool {
	return func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		sendFirst(w, a, n)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// The text in the first record of a sealed part, and in each further one.
const (
	nextRecord  = 64<<10 - 17
	firstRecord = nextRecord - 1
)

// recordEnd is where the n-th record of a sealed part ends.
func recordEnd(n int) int { return 21 + n*64<<10 }

// Each record is authenticated by itself, so those that arrived whole are the file's.
func TestTheRecordsOfACutAnswerAreKept(t *testing.T) {
	content := noise(1 << 20)
	for name, tc := range map[string]struct {
		after func(http.ResponseWriter, *httptest.ResponseRecorder) bool
		want  int
		kind  Kind
	}{
		"nothing":        {cutAfter(0), 0, KindUnreachable},
		"ten and a half": {cutAfter(recordEnd(10) + 30_000), firstRecord + 9*nextRecord, KindUnreachable},
		"ended, not cut": {endAfter(recordEnd(3)), firstRecord + 2*nextRecord, KindBadAnswer},
		"another status": {func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Code = http.StatusPartialContent
			return cutAfter(recordEnd(2))(w, a)
		}, 0, KindBadAnswer},
		"unsigned": {func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Header().Del("Signature")
			return cutAfter(recordEnd(2))(w, a)
		}, 0, KindNotExecutor},
		"a bit of the third record": {flipped(recordEnd(2) + 100), firstRecord + nextRecord, KindBadAnswer},
		"a bit of the last record":  {flipped(int(seal.Size(1<<20)) - 1), firstRecord + 15*nextRecord, KindBadAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFile(t, content)
			e.setAfter(tc.after)
			got, err := fetch(t, e.client(t), Part{"f", "e", 0}, len(content))
			if wantKind(t, err, tc.kind); len(got) != tc.want || Transient(err) != (tc.kind == KindUnreachable) {
				t.Fatalf("%d bytes, want %d; %v", len(got), tc.want, err)
			}
			if !bytes.Equal(got, content[:len(got)]) {
				t.Error("not the file's bytes")
			}
		})
	}
}

// endAfter ends each answer's body after n bytes, as a proxy does that has lost the rest.
func endAfter(n int) func(http.ResponseWriter, *httptest.ResponseRecorder) bool {
	return func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		a.Body.Truncate(n)
		send(w, a)
		return true
	}
}

// flipped changes one bit of each answer's body.
func flipped(at int) func(http.ResponseWriter, *httptest.ResponseRecorder) bool {
	return func(_ http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		a.Body.Bytes()[at] ^= 1
		return false
	}
}

func TestMoreContentThanAskedForIsRefused(t *testing.T) {
	content := noise(200_000)
	e := newExecutor(t, func(seen) (int, any) { return http.StatusOK, content })
	for _, length := range []int{1999, firstRecord, len(content) - 1} {
		got, err := fetch(t, e.client(t), Part{"f", "e", 0}, length)
		if wantKind(t, err, KindBadAnswer); len(got) > length {
			t.Errorf("%d bytes of %d", len(got), length)
		}
	}
}

// blobs serves one blob in parts.
func blobs(t *testing.T, content []byte) (*executor, string) {
	e := newExecutor(t, func(s seen) (int, any) {
		query, err := url.ParseQuery(s.query)
		if err != nil {
			return 400, refusalBody(contract.CodeBadRequest)
		}
		offset, _ := strconv.Atoi(query.Get("offset"))
		length, _ := strconv.Atoi(query.Get("length"))
		if length > contract.MaxBlobPart {
			return 400, refusalBody(contract.CodeBadRequest)
		}
		return 200, append([]byte{}, content[offset:min(offset+length, len(content))]...)
	})
	return e, fmt.Sprintf("%x", sha256.Sum256(content))
}

func TestBlobWithAnotherSHA256IsRefused(t *testing.T) {
	e, _ := blobs(t, []byte("hello"))
	var got bytes.Buffer
	err := e.client(t).Blob(t.Context(), "e-1", contract.Blob{Number: 7, SHA256: strings.Repeat("0", 64), Bytes: 5}, &got)
	wantKind(t, err, KindBadAnswer)
}

func TestBlobIsResumedWhereItBroke(t *testing.T) {
	content := make([]byte, contract.MaxBlobPart+1)
	_, _ = rand.Read(content)
	e, sha := blobs(t, content)
	broken := false
	e.setAfter(func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		if a.Body.Len() > 1000 || broken {
			return false
		}
		broken = true
		hangUp(w)
		return true
	})
	var got bytes.Buffer
	must(t, e.client(t).Blob(t.Context(), "e-1", contract.Blob{Number: 7, SHA256: sha, Bytes: int64(len(content))}, &got))
	if !bytes.Equal(got.Bytes(), content) {
		t.Error("not the same bytes")
	}
	offsets := map[string]int{}
	for _, r := range e.all() {
		query, _ := url.ParseQuery(r.query)
		offsets[query.Get("offset")]++
	}
	if offsets["0"] != 1 {
		t.Errorf("parts asked for by offset: %v", offsets)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, http.ErrBodyNotAllowed }

func TestBlobReportsOfAFullDisk(t *testing.T) {
	e, sha := blobs(t, []byte("hello"))
	if err := e.client(t).Blob(t.Context(), "e-1", contract.Blob{Number: 7, SHA256: sha, Bytes: 5}, fullDisk{}); err == nil || refusal(err) != nil {
		t.Errorf("error %v", err)
	}
}

func TestAReleasesFileIsNeverFetchedByHTTPAfterHTTPS(t *testing.T) {
	from := func(url string) *http.Request {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		must(t, err)
		return req
	}
	if onward(from("http://b"), []*http.Request{from("https://a")}) == nil {
		t.Error("followed from https to http")
	}
	if err := onward(from("https://b"), []*http.Request{from("http://a")}); err != nil {
		t.Errorf("not followed to https: %v", err)
	}
}
