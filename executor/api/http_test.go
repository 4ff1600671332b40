package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"colabrelay/executor/files"
	"colabrelay/executor/uploads"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stand is an API behind a real HTTP server, and a caller with its key.
type stand struct {
	t      testing.TB
	api    *API
	secret auth.Secret
	url    string
	log    *syncBuffer
	http   *http.Client
	server *httptest.Server
}

// syncBuffer is a log to which many goroutines write.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// addrHeader lets a test choose its address; the program takes it from the tunnel.
const addrHeader = "Test-Addr"

func newStand(t testing.TB) *stand {
	s := newAPI(t)
	s.serve(s.api)
	return s
}

// newAPI is a stand that nobody can reach yet.
func newAPI(t testing.TB) *stand {
	secret := auth.GenerateSecret()
	s := &stand{t: t, secret: secret, log: &syncBuffer{}}
	s.api = New(Config{
		Secret: secret, Instance: contract.Instance{ID: "instance-1", Start: "start-1"}, Version: "test", Started: time.Now(),
		Log:        slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		ClientAddr: func(r *http.Request) string { return r.Header.Get(addrHeader) },
	})
	return s
}

// direct is an HTTP transport without a network.
type direct struct{ h http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, r)
	return w.Result(), nil
}

// timeless runs a test of a stand that echoes, while the time stands still: rates are not refilled.
func timeless(t *testing.T, test func(t *testing.T, s *stand)) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPI(t)
		s.api.signed.maxWait = 0
		s.url, s.http = "http://executor", &http.Client{Transport: direct{s.api.authenticated(http.HandlerFunc(echo))}}
		test(t, s)
	})
}

// serve starts a server for h with the timeouts of the program.
func (s *stand) serve(h http.Handler) {
	server := httptest.NewUnstartedServer(nil)
	server.Config = Server(h, nil)
	server.Start()
	s.server, s.url = server, server.URL
	s.http = &http.Client{Transport: &http.Transport{DisableCompression: true}}
	s.t.Cleanup(func() {
		s.http.CloseIdleConnections()
		server.Close()
	})
}

// standWith serves h inside the whole chain of middleware.
func standWith(t testing.TB, h http.HandlerFunc) *stand {
	s := newStand(t)
	s.serve(s.api.authenticated(h))
	return s
}

func (s *stand) request(method, path string, body []byte) *http.Request {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	must(s.t, err)
	if method != http.MethodGet {
		req.Header.Set(contract.HeaderInstance, s.api.Instance.String())
	}
	return req
}

// reply is an answer and its body.
type reply struct {
	*http.Response
	body []byte
}

func (s *stand) do(req *http.Request) reply {
	s.t.Helper()
	res, err := s.http.Do(req)
	must(s.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(s.t, err)
	return reply{res, body}
}

// sign seals the query of req and body, and signs req. A body of a PUT is a part of a file.
func (s *stand) sign(req *http.Request, body []byte, created time.Time) *auth.Exchange {
	s.t.Helper()
	return linetest.Seal(s.t, s.secret, req, body, created)
}

// signed sends req with body, sealed and signed, and opens the answer.
func (s *stand) signed(req *http.Request, body []byte) reply {
	s.t.Helper()
	return s.signedAt(req, body, time.Now())
}

func (s *stand) signedAt(req *http.Request, body []byte, created time.Time) reply {
	s.t.Helper()
	return s.opened(req, s.sign(req, body, created))
}

// opened sends a signed request and opens the answer.
func (s *stand) opened(req *http.Request, x *auth.Exchange) reply {
	s.t.Helper()
	res := s.do(req)
	body, err := linetest.Open(x, res.Response, bytes.NewReader(res.body), req.URL.Path == contract.PathContent)
	if err != nil {
		s.t.Fatalf("%s %s: %d %.300q: %v", req.Method, req.URL.Path, res.StatusCode, res.body, err)
	}
	return reply{res.Response, body}
}

func (s *stand) call(method, path string, v any) reply {
	s.t.Helper()
	var body []byte
	if v != nil {
		var err error
		body, err = json.Marshal(v)
		must(s.t, err)
	}
	return s.signed(s.request(method, path, body), body)
}

func (r reply) error(t testing.TB) contract.Error {
	t.Helper()
	var e contract.ErrorBody
	if err := json.Unmarshal(r.body, &e); err != nil {
		t.Fatalf("%d %s: %v", r.StatusCode, r.body, err)
	}
	return e.Error
}

// want checks status and code of a refused request.
func (r reply) want(t testing.TB, status int, code contract.Code) contract.Error {
	t.Helper()
	e := r.error(t)
	if r.StatusCode != status || e.Code != code {
		t.Fatalf("answer is %d %s (%s), want %d %s", r.StatusCode, e.Code, e.Message, status, code)
	}
	if e.Message == "" || e.Hint == "" || e.RequestID == "" {
		t.Fatalf("error is not whole: %+v", e)
	}
	return e
}

// echo answers with the decoded body.
func echo(w http.ResponseWriter, r *http.Request) { w.Write(callOf(r).body) }

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

// fileStand is an API over real files, without a kernel.
type fileStand struct {
	*stand
	work string
}

func newFileStand(t testing.TB) fileStand {
	t.Helper()
	b, base := fileBackend(t, t.TempDir())
	s := fileStand{newStand(t), filepath.Join(base, "work")}
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
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
	must(s.t, os.WriteFile(filepath.Join(s.work, name), content, 0o600))
}

func (s fileStand) etag(name string) string {
	s.t.Helper()
	return into[contract.FileStat](s.stand, s.call("GET", contract.PathStat+"?path="+url.QueryEscape(name), nil)).ETag
}

func contentPath(name, etag string, offset, length int64) string {
	query := url.Values{"path": {name}, "etag": {etag}}
	query.Set("offset", strconv.FormatInt(offset, 10))
	query.Set("length", strconv.FormatInt(length, 10))
	return contract.PathContent + "?" + query.Encode()
}

func startOf(name string, content []byte) contract.UploadStart {
	return contract.UploadStart{Path: name, SizeBytes: int64(len(content)), Version: sum(content)[:16]}
}

func (s fileStand) start(name string, content []byte) contract.Upload {
	s.t.Helper()
	return into[contract.Upload](s.stand, s.call("POST", contract.PathUploads, startOf(name, content)))
}

func (s fileStand) put(id string, offset int, body []byte) reply {
	s.t.Helper()
	return s.signed(s.request("PUT", putPath(id, offset, len(body)), body), body)
}

func putPath(id string, offset, length int) string {
	return contract.PathUploads + "/" + id + "?offset=" + strconv.Itoa(offset) + "&length=" + strconv.Itoa(length)
}

// commit requests the commit and waits for its end.
func (s fileStand) commit(name string, content []byte) contract.Upload {
	s.t.Helper()
	start := startOf(name, content)
	start.SHA256 = sum(content)
	return into[contract.Upload](s.stand, s.call("POST", contract.PathUploads+"?wait_seconds=30", start))
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

// fileBackend is a backend with files in the folders work and state of dir, whose real path it
// returns.
func fileBackend(t testing.TB, dir string) (b Backend, base string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(dir)
	must(t, err)
	work, state, temp := filepath.Join(base, "work"), filepath.Join(base, "state"), filepath.Join(base, "tmp")
	for _, dir := range []string{work, state, temp} {
		must(t, os.Mkdir(dir, 0o700))
	}
	t.Setenv("TMPDIR", temp) // so that base itself is not a root
	b.Files, err = files.Open(work, nil, state, nil)
	must(t, err)
	b.Digests = files.NewDigests(b.Files)
	b.Uploads, err = uploads.Open(b.Files, b.Digests, filepath.Join(state, "uploads"), slog.New(slog.DiscardHandler))
	must(t, err)
	return b, base
}
