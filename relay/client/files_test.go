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

func TestContentIsWrittenToTheCaller(t *testing.T) {
	big, text := noise(contract.MaxFilePart), []byte(strings.Repeat("hello ", 10_000))
	for name, tc := range map[string]struct {
		content []byte
		offset  int64
		length  int64
		want    []byte
	}{
		"in the middle":          {big, 1000, 5000, big[1000:6000]},
		"at the bound":           {big, 0, contract.MaxFilePart, big},
		"past the end":           {big[:100], 90, 50, big[90:100]},
		"at the end":             {big[:100], 100, 50, nil},
		"compressed":             {text, 6, int64(len(text)) - 6, text[6:]},
		"compressed, to the end": {text, 0, int64(len(text)) + 10, text},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFile(t, tc.content)
			var got bytes.Buffer
			n, err := e.client(t).Content(t.Context(), Part{"f", "e", tc.offset}, tc.length, &got)
			if err != nil || n != int64(got.Len()) || !bytes.Equal(got.Bytes(), tc.want) {
				t.Fatalf("%d bytes of %d, %v", n, len(tc.want), err)
			}
		})
	}
}

func TestContentTriesOnceAndSaysWhy(t *testing.T) {
	e := newFile(t, []byte("hello"))
	c := e.client(t)
	if n, err := c.Content(t.Context(), Part{"f", "old", 0}, 5, io.Discard); n != 0 || Transient(err) {
		t.Errorf("%d bytes, %v", n, err)
	} else {
		wantCode(t, err, contract.CodeChanged)
	}
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool { hangUp(w); return true })
	n, err := c.Content(t.Context(), Part{"f", "e", 0}, 5, io.Discard)
	if wantKind(t, err, KindUnreachable); n != 0 || !Transient(err) {
		t.Errorf("%d bytes, transient %v", n, Transient(err))
	}
	if got := len(e.all()); got != 1 {
		t.Errorf("%d requests passed", got)
	}
	for _, size := range []int64{-1, 0, contract.MaxFilePart + 1} {
		if _, err := c.Content(t.Context(), Part{"f", "e", 0}, size, io.Discard); err == nil {
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
	var got bytes.Buffer
	if _, err := e.client(t).Content(t.Context(), Part{"f", "e", 0}, 5, &got); err != nil || got.String() != "hello" {
		t.Errorf("%q, %v", &got, err)
	}
	if _, err := e.client(t).PutPart(t.Context(), "u", 0, []byte("hello")); err != nil {
		t.Error(err)
	}
}

// cutAfter hangs up after n bytes of each answer's body; a negative n counts from its end.
func cutAfter(n int) func(http.ResponseWriter, *httptest.ResponseRecorder) bool {
	return func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		first := n
		if n < 0 {
			first += a.Body.Len()
		}
		sendFirst(w, a, first)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// proven returns how many bytes of a file the first n bytes of an answer prove: those of its
// whole records. Before protocol 3, only a whole answer proves anything.
func proven(n int) int64 {
	const header, record, text = 21, 65_536, 65_519
	if records := (n - header) / record; contract.Protocol >= 3 && records > 0 {
		return int64(records)*text - 1 // the first byte tells the compression
	}
	return 0
}

// wantCut checks that a call returned and wrote the first bytes of content and said why there
// are no more.
func wantCut(t *testing.T, n int64, got *bytes.Buffer, err error, content []byte, want int64) {
	t.Helper()
	if n != want || n != int64(got.Len()) || !bytes.HasPrefix(content, got.Bytes()) || !Transient(err) {
		t.Errorf("%d bytes, want %d; %d were written, the file's own: %v; %v", n, want, got.Len(), bytes.HasPrefix(content, got.Bytes()), err)
	}
}

func TestOnlyProvenBytesOfACutAnswerAreWritten(t *testing.T) {
	content, text := noise(1<<20), []byte(strings.Repeat("hello ", 100_000))
	for name, tc := range map[string]struct {
		content []byte
		after   func(http.ResponseWriter, *httptest.ResponseRecorder) bool
		want    int64
	}{
		"nothing":    {content, cutAfter(0), 0},
		"a piece":    {content, cutAfter(700_000), proven(700_000)},
		"all but 1":  {content, cutAfter(-1), proven(len(content))},
		"compressed": {text, cutAfter(500), 0},
		"another status": {content, func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Code = http.StatusPartialContent
			return cutAfter(200_000)(w, a)
		}, 0},
		"unsigned": {content, func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Header().Del("Signature")
			return cutAfter(200_000)(w, a)
		}, 0},
		"signed for another instance": {content, func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Header().Set(contract.HeaderInstance, "other")
			return cutAfter(200_000)(w, a)
		}, 0},
		"of unknown length": {content, func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			for name, values := range a.Header() {
				w.Header()[name] = values
			}
			_, _ = w.Write(a.Body.Bytes()[:200_000])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, proven(200_000)},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFile(t, tc.content)
			e.setAfter(tc.after)
			var got bytes.Buffer
			n, err := e.client(t).Content(t.Context(), Part{"f", "e", 0}, int64(len(tc.content)), &got)
			wantKind(t, err, KindUnreachable)
			wantCut(t, n, &got, err, tc.content, tc.want)
		})
	}
}

func TestAStalledAnswerIsACutOne(t *testing.T) {
	content := noise(300_000)
	e := newFile(t, content)
	released := make(chan struct{})
	defer close(released)
	e.setAfter(func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		sendFirst(w, a, 150_000)
		_ = http.NewResponseController(w).Flush()
		<-released
		return true
	})
	c := e.client(t)
	c.timeouts.stall = 500 * time.Millisecond
	var got bytes.Buffer
	n, err := c.Content(t.Context(), Part{"f", "e", 0}, int64(len(content)), &got)
	wantKind(t, err, KindTimeout)
	wantCut(t, n, &got, err, content, proven(150_000))
}

// A proxy may change bytes, and cut the answer too.
func TestChangedContentIsNeverWritten(t *testing.T) {
	content := noise(300_000)
	for name, tc := range map[string]struct{ at, cut int }{
		"the first bytes": {10, len(content)}, "the first bytes, cut": {10, 200_000},
		"later bytes": {150_000, len(content)}, "later bytes, cut": {150_000, 250_000},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFile(t, content)
			e.setAfter(func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
				a.Body.Bytes()[tc.at] ^= 1
				if tc.cut < len(content) {
					return cutAfter(tc.cut)(w, a)
				}
				return false
			})
			var got bytes.Buffer
			n, err := e.client(t).Content(t.Context(), Part{"f", "e", 0}, int64(len(content)), &got)
			if want := proven(tc.at); err == nil || n != want || n != int64(got.Len()) || !bytes.HasPrefix(content, got.Bytes()) {
				t.Errorf("%d bytes, want %d; %d were written; %v", n, want, got.Len(), err)
			}
			if tc.cut == len(content) {
				wantKind(t, err, KindBadAnswer)
			}
		})
	}
}

// smallDisk is a writer that fails when its space is used up.
type smallDisk struct{ space int }

var errFull = errors.New("full")

func (w *smallDisk) Write(b []byte) (int, error) {
	if len(b) > w.space {
		return 0, errFull
	}
	w.space -= len(b)
	return len(b), nil
}

func TestContentReturnsTheErrorOfTheWriter(t *testing.T) {
	e := newFile(t, noise(300_000))
	w := &smallDisk{space: 100_000}
	n, err := e.client(t).Content(t.Context(), Part{"f", "e", 0}, 300_000, w)
	if !errors.Is(err, errFull) || Transient(err) || n != int64(100_000-w.space) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestMoreContentThanAskedForIsRefused(t *testing.T) {
	for name, content := range map[string][]byte{
		"plain": noise(2000), "compressed": bytes.Repeat([]byte("x"), 2000),
	} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, func(seen) (int, any) { return http.StatusOK, content })
			var got bytes.Buffer
			n, err := e.client(t).Content(t.Context(), Part{"f", "e", 0}, 1999, &got)
			if wantKind(t, err, KindBadAnswer); n != int64(got.Len()) || !bytes.HasPrefix(content, got.Bytes()) {
				t.Errorf("%d bytes, and %d were written", n, got.Len())
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
					var got bytes.Buffer
					offset := int64(i) << 18
					_, err := c.Content(t.Context(), Part{"f", "e", offset}, 1<<18, &got)
					if err != nil || !bytes.Equal(got.Bytes(), content[offset:offset+1<<18]) {
						t.Errorf("part %d: %d bytes, %v", i, got.Len(), err)
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
		if _, err := c.Content(t.Context(), Part{"f", "e", 0}, 1, io.Discard); err != nil { // or all six dial together
			t.Fatal(err)
		}
		parts(t, c)
		if got := e.connections.Load(); got != 1 {
			t.Errorf("%d connections", got)
		}
		e.setAfter(cutAfter(100_000))
		var got bytes.Buffer
		n, err := c.Content(t.Context(), Part{"f", "e", 0}, 1<<18, &got)
		wantCut(t, n, &got, err, content, proven(100_000))
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

// Whatever a stranger answers, cut or whole, none of it is content.
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
		var got bytes.Buffer
		n, err := c.Content(t.Context(), Part{"f", "e", 0}, 16, &got)
		if n != 0 || err == nil || got.Len() != 0 {
			t.Fatalf("%d bytes, %d were written, %v", n, got.Len(), err)
		}
	})
}
