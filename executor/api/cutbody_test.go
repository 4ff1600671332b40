package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// sendHead opens a connection and sends the signed head of a request with a body, of which
// the caller sends as much as it likes.
func (s *stand) sendHead(method, path string, body []byte, header ...string) net.Conn {
	s.t.Helper()
	req := s.request(method, path, body)
	if _, err := auth.NewSigner(s.secret).SignRequest(req, body, time.Now()); err != nil {
		s.t.Fatal(err)
	}
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n", method, req.URL.RequestURI(), len(body))
	for name := range req.Header {
		fmt.Fprintf(&head, "%s: %s\r\n", name, req.Header.Get(name))
	}
	for _, line := range header {
		fmt.Fprintf(&head, "%s\r\n", line)
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, head.String()+"\r\n"); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s fileStand) cutPut(id string, content, prefix []byte, header ...string) {
	s.t.Helper()
	c := s.sendHead("PUT", putPath(id, 0), content, header...)
	if _, err := c.Write(prefix); err != nil {
		s.t.Fatal(err)
	}
	c.Close()
}

func TestTheBeginningOfACutPartIsKept(t *testing.T) {
	s := newFileStand(t)
	content := noise(1 << 20)
	const received = 700_000
	id := s.start("a", content).UploadID
	s.cutPut(id, content, content[:received])
	eventually(t, func() bool { return s.upload(id).ReceivedBytes == received })
	u := s.upload(id)
	if len(u.Missing) != 1 || u.Missing[0] != (contract.Range{Offset: received, Length: int64(len(content)) - received}) {
		t.Fatalf("missing is %v", u.Missing)
	}
	s.put(id, received, content[received:])
	s.wantFile(s.commit(id), content)
}

// Bytes are kept whether the peer stalls or disconnects.
func TestTheBeginningOfAStalledPartIsKept(t *testing.T) {
	s := newFileStand(t)
	s.api.bodyLimits.stall = 500 * time.Millisecond
	content := noise(1 << 20)
	id := s.start("a", content).UploadID
	c := s.sendHead("PUT", putPath(id, 0), content)
	if _, err := c.Write(content[:1000]); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusBadRequest || !res.Close {
		t.Errorf("answer is %d, connection closed %v", res.StatusCode, res.Close)
	}
	if got := s.upload(id).ReceivedBytes; got != 1000 {
		t.Errorf("%d bytes are kept", got)
	}
}

// The head of a cut part was verified, but its bytes were not: if the whole file is wrong,
// only they have to be sent again.
func TestForgedBytesOfACutPartAreSentAgain(t *testing.T) {
	s := newFileStand(t)
	content := noise(300_000)
	u := s.start("a", content)
	id := u.UploadID
	s.put(id, 200_000, content[200_000:])
	s.cutPut(id, content[:200_000], noise(50_000))
	eventually(t, func() bool { return s.upload(id).ReceivedBytes == 150_000 })
	s.put(id, 50_000, content[50_000:200_000])
	want := u
	want.ReceivedBytes, want.Missing = 250_000, []contract.Range{{Length: 50_000}}
	if diff := cmp.Diff(want, s.commit(id)); diff != "" {
		t.Fatalf("upload (-want +got):\n%s", diff)
	}
	s.put(id, 0, content[:50_000])
	s.wantFile(s.commit(id), content)
}

// A cut part does not overwrite verified bytes of another connection.
func TestACutPartNeverReplacesProvenBytes(t *testing.T) {
	s := newFileStand(t)
	content := noise(100_000)
	id := s.start("a", content).UploadID
	s.put(id, 0, content[:50_000])
	s.cutPut(id, content, noise(60_000))
	eventually(t, func() bool { return s.upload(id).ReceivedBytes == 60_000 })
	s.put(id, 50_000, content[50_000:])
	s.wantFile(s.commit(id), content)
}

func TestACompletePartThatWasNotSignedIsNotKept(t *testing.T) {
	s := newFileStand(t)
	content := noise(100_000)
	id := s.start("a", content).UploadID
	s.signed(s.request("PUT", putPath(id, 0), noise(len(content))), content).
		want(t, http.StatusBadRequest, contract.CodeBadRequest)
	if got := s.upload(id).ReceivedBytes; got != 0 {
		t.Errorf("%d bytes are kept", got)
	}
}

func TestTheBeginningOfACompressedPartIsNotKept(t *testing.T) {
	s := newFileStand(t)
	content := noise(100_000)
	id := s.start("a", content).UploadID
	packed := zip(t, content)
	c := s.sendHead("PUT", putPath(id, 0), packed, "Content-Encoding: gzip")
	if _, err := c.Write(packed[:5000]); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil { // until the answer has arrived
		t.Fatal(err)
	}
	if got := s.upload(id).ReceivedBytes; got != 0 {
		t.Errorf("%d bytes are kept", got)
	}
}

// Only uploads of parts may receive a cut body; no other handler does.
func TestACutBodyReachesNoOtherHandler(t *testing.T) {
	reached := make(chan string, 1)
	s := standWith(t, func(_ http.ResponseWriter, r *http.Request) { reached <- r.Method })
	for _, method := range []string{"POST", "DELETE", "PUT"} {
		c := s.sendHead(method, "/x", []byte("hello"))
		if _, err := io.WriteString(c, "hel"); err != nil {
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

// paced is a body of zeros that sends a small piece every few milliseconds.
type paced struct {
	left   int
	tick   *time.Ticker
	closed chan struct{}
}

func newPaced(size int) *paced {
	return &paced{size, time.NewTicker(5 * time.Millisecond), make(chan struct{})}
}

func (p *paced) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	select {
	case <-p.tick.C:
	case <-p.closed:
		return 0, io.ErrClosedPipe
	}
	n := min(len(b), p.left, 1000)
	clear(b[:n])
	p.left -= n
	return n, nil
}

func (p *paced) Close() error {
	p.tick.Stop()
	close(p.closed)
	return nil
}

func (s fileStand) pacedPut(id string, size int) (*http.Response, error) {
	s.t.Helper()
	req := s.request("PUT", putPath(id, 0), nil)
	req.Body, req.ContentLength, req.GetBody = newPaced(size), int64(size), nil
	if _, err := auth.NewSigner(s.secret).SignRequest(req, make([]byte, size), time.Now()); err != nil {
		s.t.Fatal(err)
	}
	return s.http.Do(req)
}

// 400 KB at 1.6 Mbit/s take twice as long as one piece may take.
func TestASlowPartThatMovesIsNotCut(t *testing.T) {
	s := newFileStand(t)
	s.api.bodyLimits.stall = time.Second
	const size = 400_000
	id := s.start("a", make([]byte, size)).UploadID
	began := time.Now()
	res, err := s.pacedPut(id, size)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || time.Since(began) < 3*s.api.bodyLimits.stall/2 {
		t.Fatalf("answer is %d after %v", res.StatusCode, time.Since(began))
	}
	s.wantFile(s.commit(id), make([]byte, size))
}

// A body that arrives byte by byte is cut in the end, even if it is signed.
func TestAPartThatNeverEndsIsCut(t *testing.T) {
	s := newFileStand(t)
	s.api.bodyLimits = bodyLimits{stall: time.Minute, total: 200 * time.Millisecond}
	const size = 4 << 20 // 20 s at its pace
	id := s.start("a", make([]byte, size)).UploadID
	began := time.Now()
	if res, err := s.pacedPut(id, size); err == nil {
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("answer is %d", res.StatusCode)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if got := s.upload(id).ReceivedBytes; got == 0 || got == size {
		t.Errorf("%d bytes are kept", got)
	}
}

// A reader that stops is disconnected; a slow one is not.
func TestAnAnswerIsSentWhileItsReaderMakesProgress(t *testing.T) {
	s := newFileStand(t)
	s.write("a", noise(contract.MaxFilePart))
	path := contentPath("a", s.stat("a", "").ETag, 0, contract.MaxFilePart)
	answered := func() int { return strings.Count(s.log.String(), contract.PathContent) }
	get := func(stall time.Duration, ready func()) (n int) {
		s.api.bodyLimits.stall = stall
		c := s.sendHead("GET", path, nil)
		if err := c.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		ready()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for piece := make([]byte, 64<<10); n < contract.MaxFilePart; {
			<-tick.C
			k, err := c.Read(piece)
			n += k
			if err != nil {
				break
			}
		}
		return n
	}
	if n := get(10*time.Second, func() {}); n < contract.MaxFilePart {
		t.Errorf("a slow reader gets %d bytes", n)
	}
	eventually(t, func() bool { return answered() == 1 })
	stopped := func() { eventually(t, func() bool { return answered() == 2 }) }
	if n := get(20*time.Millisecond, stopped); n >= contract.MaxFilePart {
		t.Errorf("one that stopped gets all %d bytes", n)
	}
}

func TestTheMemoryOfLargeBodiesIsReused(t *testing.T) {
	first := newBuffer(1 << 20)
	first.Write(bytes.Repeat([]byte("x"), 1000))
	recycle(first)
	if again := newBuffer(1 << 20); again.Len() != 0 {
		t.Errorf("%d bytes of another body are in it", again.Len())
	}
	for size, kept := range map[int]bool{minPooled - 1: false, minPooled: true, maxPooled: true, maxPooled + 1: false} {
		if got := keeps(size); got && !kept {
			t.Errorf("a buffer of %d bytes is kept", size)
		}
	}
}

// keeps reports whether the pool returns a buffer of size bytes again.
func keeps(size int) bool {
	b := bytes.NewBuffer(make([]byte, 0, size))
	recycle(b)
	kept, ok := buffers.Get().(*bytes.Buffer)
	return ok && kept == b
}
