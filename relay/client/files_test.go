package client

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"colabrelay/shared/contract"
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

func TestContentIsReadIntoTheCallersMemory(t *testing.T) {
	big, text := noise(contract.MaxFilePart), []byte(strings.Repeat("hello ", 10_000))
	for name, tc := range map[string]struct {
		content []byte
		offset  int64
		length  int
		want    []byte
	}{
		"in the middle":          {big, 1000, 5000, big[1000:6000]},
		"at the bound":           {big, 0, contract.MaxFilePart, big},
		"past the end":           {big[:100], 90, 50, big[90:100]},
		"at the end":             {big[:100], 100, 50, nil},
		"compressed":             {text, 6, len(text) - 6, text[6:]},
		"compressed, to the end": {text, 0, len(text) + 10, text},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFile(t, tc.content)
			buf := make([]byte, tc.length)
			n, err := e.client(t).Content(t.Context(), Part{"f", "e", tc.offset}, buf)
			if err != nil || !bytes.Equal(buf[:n], tc.want) {
				t.Fatalf("%d bytes of %d, %v", n, len(tc.want), err)
			}
		})
	}
}

func TestContentTriesOnceAndSaysWhy(t *testing.T) {
	e := newFile(t, []byte("hello"))
	c := e.client(t)
	if n, err := c.Content(t.Context(), Part{"f", "old", 0}, make([]byte, 5)); n != 0 || Transient(err) {
		t.Errorf("%d bytes, %v", n, err)
	} else {
		wantCode(t, err, contract.CodeChanged)
	}
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool { hangUp(w); return true })
	n, err := c.Content(t.Context(), Part{"f", "e", 0}, make([]byte, 5))
	if wantKind(t, err, KindUnreachable); n != 0 || !Transient(err) {
		t.Errorf("%d bytes, transient %v", n, Transient(err))
	}
	if got := len(e.all()); got != 1 {
		t.Errorf("%d requests passed", got)
	}
	for _, size := range []int{0, contract.MaxFilePart + 1} {
		if _, err := c.Content(t.Context(), Part{"f", "e", 0}, make([]byte, size)); err == nil {
			t.Errorf("%d bytes may be asked for", size)
		}
	}
}

func TestContentAndPutPartFollowTheExecutorsClock(t *testing.T) {
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	e := newExecutorAt(t, ahead, func(s seen) (int, any) {
		if s.method == http.MethodPut {
			return http.StatusOK, contract.Upload{UploadID: "u"}
		}
		return http.StatusOK, []byte("hello")
	})
	buf := make([]byte, 5)
	if n, err := e.client(t).Content(t.Context(), Part{"f", "e", 0}, buf); err != nil || string(buf[:n]) != "hello" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if _, err := e.client(t).PutPart(t.Context(), "u", 0, []byte("hello")); err != nil {
		t.Error(err)
	}
}

// cutAfter hangs up after n bytes of each answer's body.
func cutAfter(n int) func(http.ResponseWriter, *httptest.ResponseRecorder) bool {
	return func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		sendFirst(w, a, n)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func TestWhatCameOfACutAnswerIsReported(t *testing.T) {
	content, text := noise(1<<20), []byte(strings.Repeat("hello ", 100_000))
	for name, tc := range map[string]struct {
		content []byte
		after   func(http.ResponseWriter, *httptest.ResponseRecorder) bool
		want    int
	}{
		"nothing":    {content, cutAfter(0), 0},
		"a piece":    {content, cutAfter(700_000), 700_000},
		"all but 1":  {content, cutAfter(len(content) - 1), len(content) - 1},
		"compressed": {text, cutAfter(500), 0},
		"another status": {content, func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Code = http.StatusPartialContent
			return cutAfter(1000)(w, a)
		}, 0},
		"another type": {content, func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Header().Set("Content-Type", "text/html")
			return cutAfter(1000)(w, a)
		}, 0},
		"unsigned": {content, func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Header().Del("Signature")
			return cutAfter(1000)(w, a)
		}, 0},
		"signed for another instance": {content, func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Header().Set(contract.HeaderInstance, "other")
			return cutAfter(1000)(w, a)
		}, 0},
		"of unknown length": {content, func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			for name, values := range a.Header() {
				w.Header()[name] = values
			}
			_, _ = w.Write(a.Body.Bytes()[:100_000])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFile(t, tc.content)
			e.setAfter(tc.after)
			buf := make([]byte, len(tc.content))
			n, err := e.client(t).Content(t.Context(), Part{"f", "e", 0}, buf)
			if wantKind(t, err, KindUnreachable); n != tc.want || !Transient(err) {
				t.Fatalf("%d bytes, want %d; %v", n, tc.want, err)
			}
			if !bytes.Equal(buf[:n], tc.content[:n]) {
				t.Error("not the file's bytes")
			}
		})
	}
}

func TestAStalledAnswerIsACutOne(t *testing.T) {
	content := noise(100_000)
	e := newFile(t, content)
	released := make(chan struct{})
	defer close(released)
	e.setAfter(func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		sendFirst(w, a, 40_000)
		_ = http.NewResponseController(w).Flush()
		<-released
		return true
	})
	c := e.client(t)
	c.timeouts.stall = 500 * time.Millisecond
	buf := make([]byte, len(content))
	n, err := c.Content(t.Context(), Part{"f", "e", 0}, buf)
	if wantKind(t, err, KindTimeout); n != 40_000 || !bytes.Equal(buf[:n], content[:n]) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A proxy may change bytes and cut the answer: what arrived is returned with an
// error, so that no caller takes it for verified. A complete answer that was changed is
// nothing at all.
func TestChangedContentIsNeverVerified(t *testing.T) {
	content := noise(100_000)
	for name, tc := range map[string]struct {
		cut  int
		want int
		kind Kind
	}{
		"cut":   {50_000, 50_000, KindUnreachable},
		"whole": {len(content), 0, KindBadAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFile(t, content)
			e.setAfter(func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
				a.Body.Bytes()[10] ^= 1
				if tc.cut < len(content) {
					return cutAfter(tc.cut)(w, a)
				}
				return false
			})
			n, err := e.client(t).Content(t.Context(), Part{"f", "e", 0}, make([]byte, len(content)))
			if wantKind(t, err, tc.kind); n != tc.want {
				t.Errorf("%d bytes, want %d", n, tc.want)
			}
		})
	}
}

func TestMoreContentThanAskedForIsRefused(t *testing.T) {
	for name, content := range map[string][]byte{
		"plain": noise(2000), "compressed": bytes.Repeat([]byte("x"), 2000),
	} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, func(seen) (int, any) { return http.StatusOK, content })
			n, err := e.client(t).Content(t.Context(), Part{"f", "e", 0}, make([]byte, 1999))
			if wantKind(t, err, KindBadAnswer); n != 0 {
				t.Errorf("%d bytes", n)
			}
		})
	}
}

func TestTransientIsWhatMayPass(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":        {nil, false},
		"broken":         {problem(KindUnreachable, "m", nil), true},
		"late":           {problem(KindTimeout, "m", nil), true},
		"tunnel offline": {problem(KindTunnelOffline, "m", nil), true},
		"quota":          {problem(KindTunnelQuota, "m", nil), false},
		"wrong secret":   {problem(KindWrongSecret, "m", nil), false},
		"changed answer": {problem(KindBadAnswer, "m", nil), false},
		"rate":           {&contract.Error{Code: contract.CodeRateLimited}, true},
		"starting":       {&contract.Error{Code: contract.CodeKernelStarting}, true},
		"changed file":   {&contract.Error{Code: contract.CodeChanged}, false},
		"disk full":      {&contract.Error{Code: contract.CodeDiskFull}, false},
		"something else": {errors.New("odd"), false},
	} {
		if got := Transient(tc.err); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Six parts in parallel, repeatedly, open six connections, or one of HTTP/2.
func TestPartsInParallelKeepTheirConnections(t *testing.T) {
	content := noise(6 << 18)
	parts := func(t *testing.T, c *Client) {
		for range 4 {
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					buf := make([]byte, 1<<18)
					offset := int64(i) << 18
					n, err := c.Content(t.Context(), Part{"f", "e", offset}, buf)
					if err != nil || !bytes.Equal(buf[:n], content[offset:offset+1<<18]) {
						t.Errorf("part %d: %d bytes, %v", i, n, err)
					}
				})
			}
			wg.Wait()
		}
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		e := newFile(t, content)
		parts(t, e.client(t))
		if got := e.connections.Load(); got > 6 {
			t.Errorf("%d connections", got)
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		e := newFile(t, content)
		secure := httptest.NewUnstartedServer(e)
		secure.EnableHTTP2 = true
		secure.Config.ConnState = e.Config.ConnState
		secure.StartTLS()
		defer secure.Close()
		transport := newTransport()
		pool := x509.NewCertPool()
		pool.AddCert(secure.Certificate())
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
		c := newClient(t, Config{BaseURL: secure.URL, Secret: testSecret(t, testKey), Transport: transport})
		if _, err := c.Content(t.Context(), Part{"f", "e", 0}, make([]byte, 1)); err != nil { // or all six dial together
			t.Fatal(err)
		}
		parts(t, c)
		if got := e.connections.Load(); got != 1 {
			t.Errorf("%d connections", got)
		}
		e.setAfter(cutAfter(100_000))
		buf := make([]byte, 1<<18)
		if n, err := c.Content(t.Context(), Part{"f", "e", 0}, buf); err == nil || !bytes.Equal(buf[:n], content[:n]) || n != 100_000 {
			t.Errorf("a cut answer returned %d bytes, %v", n, err)
		}
	})
}

// stranger answers every request with what a test says, unsigned.
type stranger struct {
	status int
	header http.Header
	body   []byte
	length int64
	broken bool // the body ends with an error
}

func (s stranger) RoundTrip(req *http.Request) (*http.Response, error) {
	body := io.Reader(bytes.NewReader(s.body))
	if s.broken {
		body = io.MultiReader(body, iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	return &http.Response{StatusCode: s.status, Header: s.header, Body: io.NopCloser(body), ContentLength: s.length, Request: req}, nil
}

// Whatever a stranger answers, cut or whole, none of it is content, not even
// unverified, and nothing is written past the caller's memory.
func FuzzContentOfAStranger(f *testing.F) {
	signature := unsignedAnswers["forged"].header
	f.Add(200, contentBytes, "", []byte("hello"), int64(10), true)
	f.Add(200, contentBytes, "", []byte("hello, and more than was asked for"), int64(-1), false)
	f.Add(200, contentBytes, "gzip", gzipped([]byte("hello")), int64(29), false)
	f.Add(404, "text/html", "", []byte("<html>"), int64(6), true)
	f.Fuzz(func(t *testing.T, status int, kind, encoding string, body []byte, length int64, broken bool) {
		header := http.Header{"Content-Type": {kind}, "Content-Encoding": {encoding}}
		for name, value := range signature {
			header.Set(name, value)
		}
		c, err := New(Config{
			BaseURL: "http://example.com", Secret: testSecret(t, testKey),
			Transport: stranger{status, header, body, length, broken},
		})
		if err != nil {
			t.Fatal(err)
		}
		memory := make([]byte, 32)
		n, err := c.Content(t.Context(), Part{"f", "e", 0}, memory[:16:16])
		if n != 0 || err == nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if !bytes.Equal(memory[16:], make([]byte, 16)) {
			t.Fatal("written past the end")
		}
	})
}
