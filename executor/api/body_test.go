package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// setBody makes body the bytes that are sent, whatever was signed.
func setBody(req *http.Request, body []byte) {
	req.Body, req.ContentLength, req.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
}

func TestTheSizeOfABodyIsChecked(t *testing.T) {
	s := standWith(t, func(w http.ResponseWriter, r *http.Request) { w.Write(callOf(r).body[:0]) })
	for name, tc := range map[string]struct {
		body   []byte
		status int
	}{
		"at the bound":               {noise(contract.MaxBodyBytes), 200},
		"over the bound":             {noise(contract.MaxBodyBytes + 1), 413},
		"compressed, over the bound": {make([]byte, contract.MaxBodyBytes+1), 413},
	} {
		for _, chunked := range []bool{false, true} {
			req := s.request("POST", "/x", nil)
			x := s.sign(req, tc.body, time.Now())
			if chunked && tc.body != nil {
				req.ContentLength = -1
			}
			res := s.opened(req, x)
			if tc.status == http.StatusRequestEntityTooLarge {
				res.want(t, tc.status, contract.CodeTooLarge)
			} else if res.StatusCode != tc.status {
				t.Errorf("%s (chunked %v): answer is %d %s", name, chunked, res.StatusCode, res.body)
			}
		}
	}
}

// What the tunnel's operator can change without the signature noticing: query and body are
// authentic only if they open.
func TestAQueryOrBodyThatDoesNotOpenGetsASealedRefusal(t *testing.T) {
	s := standWith(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s reached the handler", r.URL) })
	sealed := func(req *http.Request) []byte {
		body, err := io.ReadAll(req.Body)
		must(t, err)
		return body
	}
	for name, tamper := range map[string]func(req *http.Request){
		"a bit": func(req *http.Request) {
			body := sealed(req)
			body[len(body)/2] ^= 1
			setBody(req, body)
		},
		"of another request": func(req *http.Request) {
			other := s.request("POST", "/x", nil)
			s.sign(other, []byte("evil"), time.Now())
			setBody(req, sealed(other))
		},
	} {
		req := s.request("POST", "/x", nil)
		x := s.sign(req, []byte("good"), time.Now())
		tamper(req)
		if e := s.opened(req, x).want(t, http.StatusBadRequest, contract.CodeBadRequest); e.Message == "" {
			t.Errorf("%s: no message", name)
		}
	}
	for name, query := range map[string]string{
		"in the clear": "offset=1", "not sealed": "s=AAAA", "empty": "s=",
	} {
		req := s.request("GET", "/x", nil)
		req.URL.RawQuery = query
		x := auth.NewSigner(s.secret).NewExchange()
		must(t, x.SignRequest(req, time.Now()))
		if res := s.opened(req, x); res.StatusCode != http.StatusBadRequest {
			t.Errorf("query %s: answer is %d %s", name, res.StatusCode, res.body)
		}
	}
}

// Thousands of empty values take a hundred times their text in memory.
func TestTheValuesOfABodyAreBounded(t *testing.T) {
	for n, refused := range map[int]bool{maxValues - 2: false, maxValues - 1: true, 2_700_000: true} {
		body := `{"job_id":"a,b{[\\\"","steps":[` + strings.Repeat("1,", n-1) + `1]}` // two arrays and objects, n commas
		err := decode([]byte(body), &struct{}{})
		if errors.Is(err, errTooManyValues) != refused || !refused && err != nil {
			t.Errorf("%d values: %v", n, err)
		}
	}
}

// sendHead opens a connection and sends the signed head of a request with a body. It returns
// the sealed body, of which the caller sends as much as it likes.
func (s *stand) sendHead(method, path string, body []byte) (net.Conn, []byte) {
	s.t.Helper()
	req := s.request(method, path, nil)
	s.sign(req, body, time.Now())
	var sealed []byte
	if req.Body != nil {
		var err error
		sealed, err = io.ReadAll(req.Body)
		must(s.t, err)
	}
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n", method, req.URL.RequestURI(), len(sealed))
	for name := range req.Header {
		fmt.Fprintf(&head, "%s: %s\r\n", name, req.Header.Get(name))
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, head.String()+"\r\n"); err != nil {
		s.t.Fatal(err)
	}
	return c, sealed
}

// The text in the first record of a part, and in each further one: a record of 64 KiB holds
// the delimiter and the tag, the first one also the leading byte.
const (
	nextRecord  = 64<<10 - 17
	firstRecord = nextRecord - 1
)

// recordEnd is where the n-th record of a sealed part ends.
func recordEnd(n int) int { return 21 + n*64<<10 }

// The operator of the tunnel replaces the end of a part: what opened before it is kept, and
// nothing of the forged end.
func TestForgedRecordsOfAPartAreNotKept(t *testing.T) {
	s := newFileStand(t)
	content := noise(300_000)
	id := s.start("a", content).UploadID
	for name, forge := range map[string]func([]byte){
		"a bit of the third record": func(b []byte) { b[recordEnd(2)+5] ^= 4 },
		"two records swapped":       func(b []byte) { copy(b[recordEnd(2):], b[recordEnd(3):recordEnd(4)]) },
	} {
		req := s.request("PUT", putPath(id, 0, len(content)), nil)
		x := s.sign(req, content, time.Now())
		sealed, err := io.ReadAll(req.Body)
		must(t, err)
		forge(sealed)
		setBody(req, sealed)
		s.opened(req, x).want(t, http.StatusBadRequest, contract.CodeBadRequest)
		if missing := s.start("a", content).Missing; len(missing) != 1 || missing[0].Offset != firstRecord+nextRecord {
			t.Errorf("%s: then %v is missing", name, missing)
		}
	}
	s.put(id, 0, content)
	s.wantFile(s.commit("a", content), content)
}

// Only uploads of parts may receive a cut body; no other handler does.
func TestACutBodyReachesNoOtherHandler(t *testing.T) {
	reached := make(chan string, 1)
	s := standWith(t, func(_ http.ResponseWriter, r *http.Request) { reached <- r.Method })
	for _, method := range []string{"POST", "DELETE", "PUT"} {
		c, sealed := s.sendHead(method, "/x", []byte("hello"))
		if _, err := c.Write(sealed[:len(sealed)-1]); err != nil {
			t.Fatal(err)
		}
		must(t, c.(*net.TCPConn).CloseWrite())
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-reached; got != "PUT" || len(reached) != 0 {
		t.Errorf("%s reached the handler, and %d more", got, len(reached))
	}
}

func TestTheSizeOfAPartIsChecked(t *testing.T) {
	s := newFileStand(t)
	content := make([]byte, contract.MaxFilePart+1)
	u := s.start("a", content)
	for _, chunked := range []bool{false, true} {
		ask := func(body []byte) reply {
			req := s.request("PUT", putPath(u.UploadID, 0, len(body)), nil)
			x := s.sign(req, body, time.Now())
			if chunked {
				req.ContentLength = -1
			}
			return s.opened(req, x)
		}
		if e := ask(content).want(t, http.StatusRequestEntityTooLarge, contract.CodeTooLarge); !strings.Contains(e.Hint, "parts") {
			t.Errorf("chunked %v: hint is %q", chunked, e.Hint)
		}
		if res := ask(content[1:]); res.StatusCode != http.StatusOK {
			t.Errorf("chunked %v: at the bound it is %d %s", chunked, res.StatusCode, res.body)
		}
	}
	s.put(u.UploadID, contract.MaxFilePart, content[:1])
	s.wantFile(s.commit("a", content), content)
}

// The file changed while it was sent: what arrived is dropped, and the same start begins again.
func TestACommitWithTheDigestOfAnotherFileIsRefused(t *testing.T) {
	s := newFileStand(t)
	content := noise(1000)
	u := s.start("a", content)
	s.put(u.UploadID, 0, content)
	start := startOf("a", content)
	start.SHA256 = sum(nil)
	s.call("POST", contract.PathUploads+"?wait_seconds=10", start).
		want(t, http.StatusPreconditionFailed, contract.CodeChanged)
	if u = s.start("a", content); u.Missing[0].Length != int64(len(content)) {
		t.Errorf("started again it is %+v", u)
	}
	s.put(u.UploadID, 0, content)
	s.wantFile(s.commit("a", content), content)
}

func TestTheBoundsOfTransferRequestsAreChecked(t *testing.T) {
	s := newFileStand(t)
	s.write("a", []byte("hello"))
	etag := s.etag("a")
	if res := s.call("GET", contentPath("a", etag, 0, contract.MaxFilePart), nil); string(res.body) != "hello" {
		t.Errorf("a part at the bound: %d %s", res.StatusCode, res.body)
	}
	s.call("GET", contentPath("a", strings.Repeat("x", maxETagLen), 0, 1), nil).want(t, http.StatusPreconditionFailed, contract.CodeChanged)
	id := s.start("b", []byte("hello")).UploadID
	for _, tc := range []struct{ method, path, names string }{
		{"GET", contentPath("a", etag, 0, contract.MaxFilePart+1), "length"},
		{"GET", contentPath("a", etag, -1, 1), "offset"},
		{"GET", contentPath("a", strings.Repeat("x", maxETagLen+1), 0, 1), "etag"},
		{"GET", contract.PathStat + "?path=a&digest=yes", "digest"},
		{"PUT", putPath(id, 0, -1), "length"},
	} {
		e := s.call(tc.method, tc.path, nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
		if !strings.HasPrefix(e.Message, tc.names) {
			t.Errorf("%s %.80s: message is %q, want it to name %q", tc.method, tc.path, e.Message, tc.names)
		}
	}
}
