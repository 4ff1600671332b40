package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
	"colabrelay/shared/line/linetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const testKey = "correct horse battery staple 0123456789"

func testSecret(t testing.TB, key string) auth.Secret {
	t.Helper()
	secret, err := auth.NewSecret(key)
	must(t, err)
	return secret
}

// seen is one request whose signature held, its body decompressed.
type seen struct {
	method, path, query string
	header              http.Header
	body                []byte
}

// intendedFor is the executor that the request names; empty for a GET.
func (s seen) intendedFor() string { return s.header.Get(contract.HeaderInstance) }

// executor is a small executor: real authentication in front of an answer a test
// chooses.
type executor struct {
	*httptest.Server
	secret auth.Secret
	now    func() time.Time

	mu       sync.Mutex
	requests []seen
	line     *linetest.Executor
	// respond answers a verified request, with a status and a value for JSON. []byte goes
	// out as it is, from PathContent as a part of a file.
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
	answer := httptest.NewRecorder()
	served := e.served()
	x, body, err := served.Open(r)
	switch {
	case errors.Is(err, auth.ErrUnauthorized):
		writeJSON(w, http.StatusUnauthorized, refusalBody(contract.CodeUnauthorized))
		return
	case errors.Is(err, auth.ErrClockSkew):
		refused := refusalBody(contract.CodeClockSkew)
		refused.Error.ServerTime = e.now().Unix()
		sealAnswer(served, answer, r, x, http.StatusUnauthorized, refused)
	case errors.Is(err, auth.ErrNewInstance):
		e.saw(r, body)
		sealAnswer(served, answer, r, x, http.StatusConflict, refusalBody(contract.CodeNewInstance))
	case errors.Is(err, auth.ErrNewStart):
		e.saw(r, body)
		sealAnswer(served, answer, r, x, http.StatusConflict, refusalBody(contract.CodeNewStart))
	case errors.Is(err, auth.ErrReplayed):
		sealAnswer(served, answer, r, x, http.StatusUnauthorized, refusalBody(contract.CodeReplayed))
	case line.Unopened(err):
		sealAnswer(served, answer, r, x, http.StatusBadRequest, refusalBody(contract.CodeBadRequest))
	case err != nil:
		return // the connection broke
	default:
		status, value := e.respond(e.saw(r, body))
		sealAnswer(served, answer, r, x, status, value)
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

// saw notes a request.
func (e *executor) saw(r *http.Request, body []byte) seen {
	got := seen{r.Method, r.URL.Path, r.URL.RawQuery, r.Header, body}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, got)
	return got
}

func (e *executor) served() *linetest.Executor {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.line
}

// sealAnswer records a sealed and signed answer.
func sealAnswer(e *linetest.Executor, answer *httptest.ResponseRecorder, r *http.Request, x *auth.Exchange, status int, value any) {
	body, raw := value.([]byte)
	switch {
	case raw && r.URL.Path == contract.PathContent:
		e.AnswerPart(answer, x, bytes.NewReader(body), int64(len(body)))
		return
	case !raw:
		body, _ = json.Marshal(value)
	}
	e.Answer(answer, x, status, body)
}

// all returns the requests received so far.
func (e *executor) all() []seen {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]seen(nil), e.requests...)
}

// submits returns the requests received at POST /v1/executions, refused or not.
func (e *executor) submits() []seen {
	return slices.DeleteFunc(e.all(), func(s seen) bool { return s.method != http.MethodPost || s.path != contract.PathExecutions })
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
	e.line = linetest.NewExecutor(e.secret, instance, e.now)
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
	must(t, err)
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

// runs answers submits as an executor does that knows what it ran: one execution
// for each request_id. Everything else it answers with an empty object.
type runs struct {
	mu  sync.Mutex
	ran map[string]bool
}

func (r *runs) respond(s seen) (int, any) {
	if s.method != http.MethodPost || s.path != contract.PathExecutions {
		return http.StatusOK, struct{}{}
	}
	var submit contract.Submit
	if err := json.Unmarshal(s.body, &submit); err != nil {
		return http.StatusBadRequest, refusalBody(contract.CodeBadRequest)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran[submit.RequestID] = true
	return http.StatusOK, contract.Execution{ExecutionID: "e-" + submit.RequestID, RequestID: submit.RequestID, Status: contract.StatusSucceeded}
}

// newRunningExecutor is an executor that answers as runs says.
func newRunningExecutor(t testing.TB) (*executor, *runs) {
	r := &runs{ran: map[string]bool{}}
	return newExecutor(t, r.respond), r
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
