package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"colabrelay/executor/execution"
	"colabrelay/executor/job"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/memorydir"
)

// fuzzBackend is a backend in a folder in memory whose kernel never starts, so that executions
// stay in the queue.
func fuzzBackend(f *testing.F) Backend {
	f.Helper()
	b, base := fileBackend(f, memorydir.New(f))
	work, state := filepath.Join(base, "work"), filepath.Join(base, "state")
	must(f, os.WriteFile(filepath.Join(work, "a"), []byte("content"), 0o600))
	must(f, os.WriteFile(filepath.Join(base, "secret"), []byte(outside), 0o600))
	log := slog.New(slog.DiscardHandler)
	b.Kernel = kernel.New(kernel.Config{WorkDir: work, StateDir: state, Log: log})
	b.Prober = probe.New(probe.Config{WorkDir: work, Started: time.Now()})
	stopped, stop := context.WithCancel(f.Context())
	stop()
	must(f, b.Kernel.Run(stopped))
	var err error
	b.Journal, err = journal.Open(journal.Config{Dir: filepath.Join(state, "executions"), Log: log})
	must(f, err)
	b.Queue = execution.New(execution.Config{
		Kernel: b.Kernel, Journal: b.Journal, Log: log, Memory: func() (uint64, uint64, error) { return 0, 1 << 40, nil },
	})
	b.Jobs = job.Open(job.Config{Queue: b.Queue, Journal: b.Journal, Log: log})
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// outside is what no answer may contain: a file outside of the roots.
const outside = "the content of a file outside"

// attempt is a request that is sealed, signed, changed on its way, and served.
type attempt struct {
	t       *testing.T
	request *http.Request // as it arrives
	x       *auth.Exchange
	changed bool // on its way, so its signature is wrong
	open    bool // an unsigned health request

	verified, routed bool
	answer           *http.Response
	body             []byte
}

// changes are what happens to a signed request on its way. Each makes its signature wrong.
var changes = []func(r *http.Request, at byte){
	nil,
	func(r *http.Request, at byte) { r.Header.Del(auth.HeaderSignature) },
	func(r *http.Request, at byte) { r.Header.Del(auth.HeaderSignatureInput) },
	func(r *http.Request, at byte) {
		r.Header.Set(auth.HeaderSignature, flip(r.Header.Get(auth.HeaderSignature), at))
	},
	func(r *http.Request, at byte) {
		r.Header.Set(auth.HeaderSignatureInput, flip(r.Header.Get(auth.HeaderSignatureInput), at))
	},
	func(r *http.Request, at byte) { r.URL.Path += "x" },
	func(r *http.Request, at byte) { r.URL.RawQuery += "x" },
	func(r *http.Request, at byte) { r.Method += "X" },
	func(r *http.Request, at byte) { r.Header.Add(auth.HeaderSignature, r.Header.Get(auth.HeaderSignature)) },
	func(r *http.Request, at byte) { r.Header.Add(auth.HeaderContentEncoding, "gzip") },
}

// flip changes one byte of a text, so that it stays a header's value.
func flip(text string, at byte) string {
	if text == "" {
		return "x"
	}
	b := []byte(text)
	if i := int(at) % len(b); b[i] == 'q' {
		b[i] = 'z'
	} else {
		b[i] = 'q'
	}
	return string(b)
}

// FuzzRequests serves whole requests, with a right signature or a wrong one, by the whole chain
// of middleware. Without a right signature nothing reaches the routes. Every refusal is one of
// the contract's, complete and plain, and none is an internal error.
func FuzzRequests(f *testing.F) {
	for i, seed := range []struct{ method, path, query, body string }{
		{"GET", contract.PathHealth, "", ""}, {"HEAD", contract.PathHealth, "", ""},
		{"POST", contract.PathExecutions, "", `{"request_id":"r","code":"1","unstored":true}`},
		{"GET", contract.PathExecutions + "/e-1", "offset=-1&max_bytes=9", ""},
		{"POST", contract.PathExecutions + "/e-1/input", "", `{"text":"x","offset":-1}`},
		{"POST", contract.PathJobs, "", `{"job_id":"j","steps":[{"step_id":"a","code":"1","source_name":"n"},{"step_id":"b","code":"2","skip_if_failed":["a"],"attempts":3}],"loop":{"code":"1","again":"True","max_rounds":9}}`},
		{"POST", contract.PathJobs, "", `{"job_id":"../j","steps":[{"step_id":"a","code":"\u0000","timeout_seconds":1e999,"skip_if_failed":["a","x"]}]}`},
		{"PATCH", contract.PathJobs + "/j", "", `{"revision":0,"from":"b","steps":[{"step_id":"c","code":"3"}]}`},
		{"DELETE", contract.PathJobs + "/j", "interrupt=true", ""},
		{"GET", contract.PathVariables, "", ""}, {"GET", contract.PathInspect, "name=x", ""}, {"GET", contract.PathKernel, "", ""},
		{"GET", contract.PathFiles, "path=.", ""}, {"GET", contract.PathStat, "path=a&sha256=true", ""},
		{"GET", contract.PathContent, "path=a&offset=0&length=7", ""}, {"GET", contract.PathStat, "path=../secret", ""},
		{"GET", contract.PathContent, "path=%5cx2e%5cx2e/secret&offset=0&length=9", ""},
		{"POST", contract.PathCompare, "", `{"files":[{"path":"a","sha256":"x"}]}`},
		{"POST", contract.PathContents, "", `{"files":[{"path":"../secret"}]}`},
		{"POST", contract.PathUploadBatch, "", "{}\n"},
		{"POST", contract.PathUploads, "", `{"path":"../b","size_bytes":1,"version":"v"}`},
		{"PUT", contract.PathUploads + "/00112233445566778899aabbccddeeff", "offset=0&length=1", "x"},
		{"DELETE", "//..%2f" + contract.PathFiles, "path=%zz;", "["},
	} {
		f.Add(seed.method, seed.path, seed.query, "Content-Type: application/json\nX-Request-Id: x", []byte(seed.body), byte(0), byte(0))
		f.Add(seed.method, seed.path, seed.query, "Range: bytes=0-\nExpect: 100-continue", []byte(seed.body), byte(i), byte(i*7))
	}
	backend, secret := fuzzBackend(f), auth.GenerateSecret()
	instance := contract.Instance{ID: "instance-1", Start: "start-1"}
	f.Fuzz(func(t *testing.T, method, path, query, headers string, body []byte, change, at byte) {
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Host != "" || strings.Contains(query, "#") || u.Path == contract.PathProbe {
			return // a probe starts programs
		}
		r, err := http.NewRequest(method, "http://127.0.0.1", nil)
		if err != nil {
			return
		}
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = u.Path, u.RawPath, query
		if method != http.MethodGet {
			r.Header.Set(contract.HeaderInstance, instance.String())
		}
		for line := range strings.SplitSeq(headers, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok && len(r.Header.Values(name)) == 0 && !strings.EqualFold(name, contract.HeaderInstance) {
				r.Header.Add(name, value)
			}
		}
		a := &attempt{t: t}
		a.x = linetest.Seal(t, secret, r, body, time.Now())
		if act := changes[int(change)%len(changes)]; act != nil {
			act(r, at)
			a.changed = true
		}
		if !a.arrive(r) {
			return
		}
		api := New(Config{
			Secret: secret, Instance: instance, Version: "test", Started: time.Now(),
			Log: slog.New(slog.DiscardHandler), Verified: func() { a.verified = true },
		})
		api.Attach(backend)
		routes := api.routes()
		api.handler = api.authenticated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.routed = true
			routes.ServeHTTP(w, r)
		}))
		a.serve(api)
		a.check()
	})
}

// arrive writes the request as a client does and reads it as a server does. It reports whether
// that is possible.
func (a *attempt) arrive(r *http.Request) bool {
	var wire bytes.Buffer
	if r.Write(&wire) != nil {
		return false
	}
	var err error
	a.request, err = http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		return false
	}
	a.request.RemoteAddr = "192.0.2.1:1"
	a.open = len(a.request.Header[auth.HeaderSignature]) == 0 && a.request.URL.Path == contract.PathHealth
	return true
}

// serve answers the request. Long polls end soon, because the caller leaves.
func (a *attempt) serve(h http.Handler) {
	ctx, cancel := context.WithTimeout(a.t.Context(), 20*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	defer func() {
		v := recover()
		if v != nil && (v != http.ErrAbortHandler || a.request.URL.Path != contract.PathContent) {
			panic(v)
		}
		if v == nil {
			a.answer = w.Result()
			a.body = w.Body.Bytes()
		}
	}()
	h.ServeHTTP(w, a.request.WithContext(ctx))
}

// check checks the answer, unless it is a part of a file that was cut.
func (a *attempt) check() {
	a.t.Helper()
	if a.changed && (a.verified || a.routed) {
		a.t.Fatalf("a request with a wrong signature was accepted: %s %s", a.request.Method, a.request.URL)
	}
	if a.answer == nil {
		return
	}
	if a.verified {
		part := a.request.URL.Path == contract.PathContent
		opened, err := linetest.Open(a.x, a.answer, bytes.NewReader(a.body), part)
		if err != nil {
			a.t.Fatalf("%s %s: HTTP %d: %v", a.request.Method, a.request.URL, a.answer.StatusCode, err)
		}
		a.body = opened
	}
	if bytes.Contains(a.body, []byte(outside)) || bytes.Contains(a.body, []byte(base64.StdEncoding.EncodeToString([]byte(outside)))) {
		a.t.Fatalf("the answer has a file from outside: %q", a.body)
	}
	switch {
	case a.answer.StatusCode == http.StatusOK && !a.verified && !a.open:
		a.t.Fatal("a request that was not verified succeeds")
	case a.answer.StatusCode == http.StatusInternalServerError:
		a.t.Fatal("an internal error")
	case a.answer.StatusCode != http.StatusOK && a.request.Method != http.MethodHead: // a HEAD has no body
		a.checkRefusal()
	}
}

// checkRefusal checks that the refusal is one of the contract's.
func (a *attempt) checkRefusal() {
	a.t.Helper()
	var refused contract.ErrorBody
	decoder := json.NewDecoder(bytes.NewReader(a.body))
	decoder.DisallowUnknownFields()
	if err := errors.Join(decoder.Decode(&refused), ended(decoder)); err != nil {
		a.t.Fatalf("HTTP %d, %q: %v", a.answer.StatusCode, a.body, err)
	}
	e := refused.Error
	row, known := codeRows[e.Code]
	if !known || e.Code == contract.CodeInternal || e.Message == "" || e.Hint == "" || e.RequestID == "" || e.Retryable != row.retryable {
		a.t.Fatalf("HTTP %d, %+v", a.answer.StatusCode, e)
	}
	others := []int{http.StatusRequestHeaderFieldsTooLarge, http.StatusMethodNotAllowed, http.StatusServiceUnavailable}
	if a.answer.StatusCode != row.status && !slices.Contains(others, a.answer.StatusCode) {
		a.t.Fatalf("HTTP %d for %s", a.answer.StatusCode, e.Code)
	}
	if strings.ContainsFunc(e.Message, unicode.IsControl) || !utf8.ValidString(e.Message) || len(e.Message) > 32<<10 {
		a.t.Fatalf("the message is %q", e.Message)
	}
	if !a.verified && (e.Code != contract.CodeUnauthorized && e.Code != contract.CodeTooLarge) {
		a.t.Fatalf("a request that was not verified learns %+v", e)
	}
}

// ended returns an error if more follows.
func ended(d *json.Decoder) error {
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more follows")
	}
	return nil
}
