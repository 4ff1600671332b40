package client

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

func TestMain(m *testing.M) {
	// toxiproxy itself leaves a goroutine behind where a toxic cut a connection.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}

const testKey = "correct horse battery staple 0123456789"

func testSecret(t testing.TB, key string) auth.Secret {
	t.Helper()
	secret, err := auth.NewSecret(key)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// seen is one request whose signature held, its body decompressed.
type seen struct {
	method, path, query string
	header              http.Header
	body                []byte
}

func (s seen) submit(t testing.TB) contract.Submit {
	t.Helper()
	var submit contract.Submit
	if err := json.Unmarshal(s.body, &submit); err != nil {
		t.Fatal(err)
	}
	return submit
}

// intendedFor is the executor that the request names; empty for a GET.
func (s seen) intendedFor() string { return s.header.Get(contract.HeaderInstance) }

// executor is a small executor: real authentication in front of an answer a test
// chooses.
type executor struct {
	*httptest.Server
	secret auth.Secret
	signer *auth.Signer
	now    func() time.Time

	mu       sync.Mutex
	requests []seen
	instance contract.Instance
	verifier *auth.Verifier // of instance
	// respond answers a verified request, with a status and a value for JSON; []byte
	// goes out as it is.
	respond func(seen) (int, any)
	// before runs before anything is checked, and after once the request was executed and
	// its answer signed. If one returns true, it has answered the request itself.
	before func(http.ResponseWriter, *http.Request) bool
	after  func(w http.ResponseWriter, answer *httptest.ResponseRecorder) bool

	connections atomic.Int32
}

func newExecutor(t testing.TB, respond func(seen) (int, any)) *executor {
	return newExecutorAt(t, time.Now, respond)
}

// newExecutorAt has its own clock.
func newExecutorAt(t testing.TB, now func() time.Time, respond func(seen) (int, any)) *executor {
	t.Helper()
	secret := testSecret(t, testKey)
	e := &executor{
		secret:  secret,
		signer:  auth.NewSigner(secret),
		now:     now,
		respond: respond,
	}
	e.becomes("instance-1/start-1")
	e.Server = httptest.NewUnstartedServer(e)
	e.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			e.connections.Add(1)
		}
	}
	e.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	e.Start()
	t.Cleanup(e.Close)
	return e
}

func (e *executor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if before := e.hook(); before != nil && before(w, r) {
		return
	}
	if r.URL.Path == contract.PathHealth {
		writeJSON(w, http.StatusOK, contract.Health{Status: "ok", Protocol: contract.Protocol, Version: "test"})
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the connection broke
	}
	answer := httptest.NewRecorder()
	switch _, err := e.checker().Verify(r); {
	case errors.Is(err, auth.ErrUnauthorized):
		writeJSON(w, http.StatusUnauthorized, refusalBody(contract.CodeUnauthorized))
		return
	case errors.Is(err, auth.ErrClockSkew):
		body := refusalBody(contract.CodeClockSkew)
		body.Error.ServerTime = e.now().Unix()
		e.sign(answer, r, http.StatusUnauthorized, body)
	case errors.Is(err, auth.ErrNewInstance):
		e.sawRefused(r, raw)
		e.sign(answer, r, http.StatusConflict, refusalBody(contract.CodeNewInstance))
	case errors.Is(err, auth.ErrNewStart):
		e.sawRefused(r, raw)
		e.sign(answer, r, http.StatusConflict, refusalBody(contract.CodeNewStart))
	case err != nil:
		e.sign(answer, r, http.StatusUnauthorized, refusalBody(contract.CodeReplayed))
	case auth.VerifyDigest(r.Header, raw) != nil:
		e.sign(answer, r, http.StatusBadRequest, refusalBody(contract.CodeBadRequest))
	default:
		status, value := e.handle(r, raw)
		e.sign(answer, r, status, value)
	}
	if after := e.hookAfter(); after != nil && after(w, answer) {
		return
	}
	send(w, answer)
}

func (e *executor) hook() func(http.ResponseWriter, *http.Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.before
}

func (e *executor) hookAfter() func(http.ResponseWriter, *httptest.ResponseRecorder) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.after
}

func (e *executor) handle(r *http.Request, raw []byte) (int, any) {
	got, err := e.saw(r, raw)
	if err != nil {
		return http.StatusBadRequest, refusalBody(contract.CodeBadRequest)
	}
	return e.respond(got)
}

func (e *executor) sawRefused(r *http.Request, raw []byte) {
	if _, err := e.saw(r, raw); err != nil {
		panic(err)
	}
}

// saw notes a request.
func (e *executor) saw(r *http.Request, raw []byte) (seen, error) {
	body, err := decompress(raw, r.Header.Get("Content-Encoding"), contract.MaxBodyBytes)
	got := seen{r.Method, r.URL.Path, r.URL.RawQuery, r.Header, body}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, got)
	return got, err
}

func (e *executor) checker() *auth.Verifier {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.verifier
}

func (e *executor) sign(answer *httptest.ResponseRecorder, r *http.Request, status int, value any) {
	body, raw := value.([]byte)
	if raw {
		answer.Header().Set("Content-Type", "application/octet-stream")
	} else {
		body, _ = json.Marshal(value)
	}
	if packed := gzipped(body); len(packed) < len(body)/2 && len(body) > contract.CompressAbove && r.Header.Get("Accept-Encoding") == encodingGzip {
		body = packed
		answer.Header().Set("Content-Encoding", encodingGzip)
	}
	e.mu.Lock()
	answer.Header().Set(contract.HeaderInstance, e.instance.String())
	e.mu.Unlock()
	if err := e.signer.SignResponse(answer.Header(), r, status, body, time.Now()); err != nil {
		panic(err)
	}
	answer.WriteHeader(status)
	answer.Body.Write(body)
}

// all returns the requests received so far.
func (e *executor) all() []seen {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]seen(nil), e.requests...)
}

// submitted is a submit that came in, and for intendedFor.
type submitted struct {
	contract.Submit
	intendedFor string
}

// submits returns the requests received at POST /v1/executions, refused or not.
func (e *executor) submits(t testing.TB) []submitted {
	t.Helper()
	var out []submitted
	for _, r := range e.all() {
		if r.method == http.MethodPost && r.path == contract.PathExecutions {
			out = append(out, submitted{r.submit(t), r.intendedFor()})
		}
	}
	return out
}

// becomes makes the executor another one, as a new VM at the same address is, or the
// same one started again. It remembers no nonces.
func (e *executor) becomes(name string) {
	instance, err := contract.ParseInstance(name)
	if err != nil {
		panic(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.instance, e.verifier = instance, auth.NewVerifier(e.secret, instance, e.now)
}

func (e *executor) setBefore(before func(http.ResponseWriter, *http.Request) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before = before
}

func (e *executor) setAfter(after func(http.ResponseWriter, *httptest.ResponseRecorder) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.after = after
}

// client is a client of e.
func (e *executor) client(t testing.TB) *Client {
	t.Helper()
	return newClient(t, Config{BaseURL: e.URL, Secret: testSecret(t, testKey)})
}

// acquainted is a client of e that has heard of it; what that took is not noted.
func (e *executor) acquainted(t testing.TB) *Client {
	t.Helper()
	c := e.client(t)
	if _, err := c.Kernel(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = nil
	return c
}

func newClient(t testing.TB, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func refusalBody(code contract.Code) contract.ErrorBody {
	return contract.ErrorBody{Error: contract.Error{Code: code, Message: "refused"}}
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// send writes a recorded answer.
func send(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	sendFirst(w, answer, answer.Body.Len())
}

// sendFirst writes a recorded answer's head and the first n bytes of its body.
func sendFirst(w http.ResponseWriter, answer *httptest.ResponseRecorder, n int) {
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	if answer.Code != http.StatusNoContent {
		w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()[:n])
}

// hangUp breaks the connection without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.Close()
}

// first runs f for the first request only.
func first(f func(http.ResponseWriter) bool) func(http.ResponseWriter, *httptest.ResponseRecorder) bool {
	var done atomic.Bool
	return func(w http.ResponseWriter, _ *httptest.ResponseRecorder) bool {
		return done.CompareAndSwap(false, true) && f(w)
	}
}

func gzipped(body []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	_, _ = w.Write(body)
	_ = w.Close()
	return out.Bytes()
}

// lostTo is the *Error in err, checked for words and secrets.
func lostTo(t testing.TB, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T), want a *client.Error", err, err)
	}
	if e.Message == "" || e.Hint == "" || strings.Contains(e.Error()+e.Hint, testKey) {
		t.Fatalf("error without words, or with the secret: %+v", e)
	}
	return e
}

func wantKind(t testing.TB, err error, kind Kind) *Error {
	t.Helper()
	e := lostTo(t, err)
	if e.Kind != kind {
		t.Fatalf("kind %s (%s), want %s", e.Kind, e.Message, kind)
	}
	return e
}

func wantCode(t testing.TB, err error, code contract.Code) {
	t.Helper()
	if refused := refusal(err); refused == nil || refused.Code != code {
		t.Fatalf("error %v, want the executor's %s", err, code)
	}
}
