package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/within"
)

// sendHead opens a connection and sends the signed head of a request with a body. It returns
// the sealed body, of which the caller sends as much as it likes.
func (s *stand) sendHead(method, path string, body []byte) (net.Conn, []byte) {
	s.t.Helper()
	req := s.request(method, path, nil)
	s.sign(req, body, time.Now())
	var sealed []byte
	if req.Body != nil {
		var err error
		if sealed, err = io.ReadAll(req.Body); err != nil {
			s.t.Fatal(err)
		}
	}
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n", method, req.URL.RequestURI(), len(sealed))
	for name := range req.Header {
		fmt.Fprintf(&head, "%s: %s\r\n", name, req.Header.Get(name))
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
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

// cutPut sends the first bytes of a sealed part.
func (s fileStand) cutPut(id string, content []byte, bytes int) {
	s.t.Helper()
	c, sealed := s.sendHead("PUT", putPath(id, 0, len(content)), content)
	if _, err := c.Write(sealed[:bytes]); err != nil {
		s.t.Fatal(err)
	}
	c.Close()
}

func TestTheRecordsOfACutPartAreKept(t *testing.T) {
	s := newFileStand(t)
	content := noise(1 << 20)
	const received = firstRecord + 9*nextRecord
	id := s.start("a", content).UploadID
	s.cutPut(id, content, recordEnd(10)+40_000) // and a part of the next record, which does not count
	within.Until(t, "the part has arrived", func() bool { return s.upload(id).ReceivedBytes == received })
	u := s.upload(id)
	if len(u.Missing) != 1 || u.Missing[0] != (contract.Range{Offset: received, Length: int64(len(content)) - received}) {
		t.Fatalf("missing is %v", u.Missing)
	}
	s.put(id, received, content[received:])
	s.wantFile(s.commit(id, content), content)
}

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
		if err != nil {
			t.Fatal(err)
		}
		forge(sealed)
		setBody(req, sealed)
		s.opened(req, x).want(t, http.StatusBadRequest, contract.CodeBadRequest)
		if got := s.upload(id).ReceivedBytes; got != firstRecord+nextRecord {
			t.Errorf("%s: %d bytes are kept", name, got)
		}
	}
	s.put(id, 0, content)
	s.wantFile(s.commit(id, content), content)
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
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-reached; got != "PUT" || len(reached) != 0 {
		t.Errorf("%s reached the handler, and %d more", got, len(reached))
	}
}
