package client

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
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
	"colabrelay/shared/seal"
	"colabrelay/shared/tier"
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

func TestContentIsWrittenAsItArrives(t *testing.T) {
	big, text := noise(contract.MaxFilePart), []byte(strings.Repeat("hello ", 10_000))
	for name, tc := range map[string]struct {
		content []byte
		offset  int64
		length  int
		want    []byte
	}{
		"in the middle":    {big, 1000, 5000, big[1000:6000]},
		"at the bound":     {big, 0, contract.MaxFilePart, big},
		"past the end":     {big[:100], 90, 50, big[90:100]},
		"at the end":       {big[:100], 100, 50, nil},
		"text":             {text, 6, len(text) - 6, text[6:]},
		"text, to the end": {text, 0, len(text) + 10, text},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFile(t, tc.content)
			got, err := fetch(t, e.client(t), Part{"f", "e", tc.offset}, tc.length)
			if err != nil || !bytes.Equal(got, tc.want) {
				t.Fatalf("%d bytes of %d, %v", len(got), len(tc.want), err)
			}
		})
	}
}

func TestContentTriesOnceAndSaysWhy(t *testing.T) {
	e := newFile(t, []byte("hello"))
	c := e.client(t)
	if got, err := fetch(t, c, Part{"f", "old", 0}, 5); len(got) != 0 || Transient(err) {
		t.Errorf("%d bytes, %v", len(got), err)
	} else {
		wantCode(t, err, contract.CodeChanged)
	}
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool { hangUp(w); return true })
	got, err := fetch(t, c, Part{"f", "e", 0}, 5)
	if wantKind(t, err, KindUnreachable); len(got) != 0 || !Transient(err) {
		t.Errorf("%d bytes, transient %v", len(got), Transient(err))
	}
	if got := len(e.all()); got != 1 {
		t.Errorf("%d requests passed", got)
	}
	for _, size := range []int{0, contract.MaxFilePart + 1} {
		if _, err := fetch(t, c, Part{"f", "e", 0}, size); err == nil {
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
	if got, err := fetch(t, e.client(t), Part{"f", "e", 0}, 5); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := e.client(t).PutPart(t.Context(), "u", strings.NewReader("hello"), contract.Range{Length: 5}); err != nil {
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
		"nothing":                  {cutAfter(0), 0, KindUnreachable},
		"the header":               {cutAfter(recordEnd(0)), 0, KindUnreachable},
		"part of a record":         {cutAfter(recordEnd(1) - 1), 0, KindUnreachable},
		"a record":                 {cutAfter(recordEnd(1)), firstRecord, KindUnreachable},
		"ten and a half":           {cutAfter(recordEnd(10) + 30_000), firstRecord + 9*nextRecord, KindUnreachable},
		"all but one byte":         {cutAfter(int(seal.PartSize(1<<20)) - 1), firstRecord + 15*nextRecord, KindUnreachable},
		"ended, not cut":           {endAfter(recordEnd(3)), firstRecord + 2*nextRecord, KindBadAnswer},
		"ended in a record":        {endAfter(recordEnd(3) + 100), firstRecord + 2*nextRecord, KindBadAnswer},
		"of unknown length":        {unknownLength(recordEnd(2), hangUpNow), firstRecord + nextRecord, KindUnreachable},
		"ended, of unknown length": {unknownLength(recordEnd(2), endNow), firstRecord + nextRecord, KindUnreachable},
		"another status": {func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Code = http.StatusPartialContent
			return cutAfter(recordEnd(2))(w, a)
		}, 0, KindBadAnswer},
		"unsigned": {func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Header().Del("Signature")
			return cutAfter(recordEnd(2))(w, a)
		}, 0, KindNotExecutor},
		"signed for another instance": {func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
			a.Header().Set(contract.HeaderInstance, "other")
			return cutAfter(recordEnd(2))(w, a)
		}, 0, KindBadAnswer},
		"a bit of the third record": {flipped(recordEnd(2) + 100), firstRecord + nextRecord, KindBadAnswer},
		"a bit of the salt":         {flipped(3), 0, KindBadAnswer},
		"a bit of the last record":  {flipped(int(seal.PartSize(1<<20)) - 1), firstRecord + 15*nextRecord, KindBadAnswer},
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

func hangUpNow() bool { panic(http.ErrAbortHandler) }
func endNow() bool    { return true }

// unknownLength sends n bytes without Content-Length, then does last.
func unknownLength(n int, last func() bool) func(http.ResponseWriter, *httptest.ResponseRecorder) bool {
	return func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		maps.Copy(w.Header(), a.Header())
		w.Header().Del("Content-Length")
		_, _ = w.Write(a.Body.Bytes()[:n])
		_ = http.NewResponseController(w).Flush()
		return last()
	}
}

// flipped changes one bit of each answer's body.
func flipped(at int) func(http.ResponseWriter, *httptest.ResponseRecorder) bool {
	return func(_ http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		a.Body.Bytes()[at] ^= 1
		return false
	}
}

func TestAStalledAnswerIsACutOne(t *testing.T) {
	tier.Long(t)
	content := noise(100_000)
	e := newFile(t, content)
	released := make(chan struct{})
	defer close(released)
	e.setAfter(func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		sendFirst(w, a, recordEnd(1)+10)
		_ = http.NewResponseController(w).Flush()
		<-released
		return true
	})
	c := e.client(t)
	c.timeouts.stall = 5 * time.Second
	got, err := fetch(t, c, Part{"f", "e", 0}, len(content))
	if wantKind(t, err, KindTimeout); !bytes.Equal(got, content[:firstRecord]) {
		t.Errorf("%d bytes, %v", len(got), err)
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

// A full disk is not a fault of the connection.
func TestAnErrorOfTheDestinationIsReturned(t *testing.T) {
	e, full := newFile(t, noise(100_000)), errors.New("disk full")
	n, err := e.client(t).Content(t.Context(), Part{"f", "e", 0}, 100_000, iotestWriter{full})
	if n != 0 || err != full || Transient(err) { //nolint:errorlint // unchanged
		t.Errorf("%d bytes, %v", n, err)
	}
}

type iotestWriter struct{ err error }

func (w iotestWriter) Write([]byte) (int, error) { return 0, w.err }

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

// Eight parts in parallel, repeatedly, open eight connections, or one of HTTP/2.
func TestPartsInParallelKeepTheirConnections(t *testing.T) {
	tier.Long(t)
	content := noise(8 << 18)
	parts := func(t *testing.T, c *Client) {
		for range 4 {
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					offset := int64(i) << 18
					got, err := fetch(t, c, Part{"f", "e", offset}, 1<<18)
					if err != nil || !bytes.Equal(got, content[offset:offset+1<<18]) {
						t.Errorf("part %d: %d bytes, %v", i, len(got), err)
					}
				})
			}
			wg.Wait()
		}
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		e := newFile(t, content)
		parts(t, e.client(t))
		if got := e.connections.Load(); got > 8 {
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
		transport := NewTransport()
		pool := x509.NewCertPool()
		pool.AddCert(secure.Certificate())
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
		c := newClient(t, Config{BaseURL: secure.URL, Secret: testSecret(t, testKey), Transport: transport})
		if _, err := fetch(t, c, Part{"f", "e", 0}, 1); err != nil { // or all eight dial together
			t.Fatal(err)
		}
		parts(t, c)
		if got := e.connections.Load(); got != 1 {
			t.Errorf("%d connections", got)
		}
		e.setAfter(cutAfter(100_000))
		if got, err := fetch(t, c, Part{"f", "e", 0}, 1<<18); err == nil || !bytes.Equal(got, content[:firstRecord]) {
			t.Errorf("a cut answer returned %d bytes, %v", len(got), err)
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

// Whatever a stranger answers, cut or whole, none of it is content.
func FuzzContentOfAStranger(f *testing.F) {
	signature := unsignedAnswers["forged"].header
	f.Add(200, "aes128gcm", []byte("hello"), int64(10), true)
	f.Add(200, "aes128gcm", []byte("hello, and more than was asked for"), int64(-1), false)
	f.Add(200, "gzip", []byte("hello"), int64(29), false)
	f.Add(404, "", []byte("<html>"), int64(6), true)
	f.Fuzz(func(t *testing.T, status int, encoding string, body []byte, length int64, broken bool) {
		header := http.Header{}
		for name, value := range signature {
			header.Set(name, value)
		}
		header["Content-Encoding"] = []string{encoding}
		c, err := New(Config{
			BaseURL: "http://example.com", Secret: testSecret(t, testKey),
			Transport: stranger{status, header, body, length, broken},
		})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Content(t.Context(), Part{"f", "e", 0}, 16, failingWriter{t}); n != 0 || err == nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	})
}
