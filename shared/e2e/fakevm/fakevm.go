// Package fakevm is a fake executor that serves files from memory. Tests of the relay's
// tools and commands can make it stop in the middle of an answer, disappear or refuse a
// request, which a real executor cannot be made to do. shared/e2e runs the same tools and
// commands against a real executor.
//
// It must not be linked into either program. Start reading at Start, then files.go.
package fakevm

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// VM is a fake executor. Its methods may be called while it serves.
type VM struct {
	URL    string
	Secret auth.Secret

	verifier *auth.Verifier
	signer   *auth.Signer

	mu      sync.Mutex
	files   map[string][]byte // by path below root
	uploads map[string]*upload
	asked   map[string]int
	hook    Hook
	lie     Lie
}

// Hook is called before each request is answered. It may wait until ctx ends. If it
// returns a *contract.Error, that is the answer; ErrGone closes the connection.
type Hook func(ctx context.Context, r *http.Request) error

// instance is the same for all VMs: no test needs two at one address.
var instance = contract.Instance{ID: "instance-1", Start: "start-1"}

// ErrGone makes the VM unreachable for one request.
var ErrGone = errors.New("the VM is gone")

// Start starts a VM that serves until the test ends.
func Start(t testing.TB) *VM {
	t.Helper()
	v := New()
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.URL = s.URL
	return v
}

// New returns a VM with a new secret that is not served yet.
func New() *VM { return NewWith(auth.GenerateSecret()) }

// NewWith returns a VM with that secret that is not served yet.
func NewWith(secret auth.Secret) *VM {
	return &VM{
		Secret: secret, verifier: auth.NewVerifier(secret, instance, time.Now), signer: auth.NewSigner(secret),
		files: map[string][]byte{}, uploads: map[string]*upload{}, asked: map[string]int{},
		hook: func(context.Context, *http.Request) error { return nil },
		lie:  func(*http.Request, []byte) (Reply, bool) { return Reply{}, false },
	}
}

// Pairing returns the pairing string for `relay pair`.
func (v *VM) Pairing() string { return auth.Pairing{URL: v.URL, Secret: v.Secret}.String() }

// On sets the hook.
func (v *VM) On(h Hook) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hook = h
}

// Count returns how many requests a route received, such as "GET /v1/files/content".
func (v *VM) Count(route string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked[route]
}

// ServeHTTP implements http.Handler.
func (v *VM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client disconnected
	}
	v.mu.Lock()
	v.asked[r.Method+" "+r.URL.Path]++
	hook, lie := v.hook, v.lie
	v.mu.Unlock()
	var answer any
	var refused *contract.Error
	if err = hook(r.Context(), r); err == nil {
		err = v.verify(r)
	}
	if err == nil {
		body, err = plain(r, body)
	}
	if err == nil {
		if reply, ok := lie(r, body); ok {
			v.reply(w, r, reply)
			return
		}
		answer, err = v.answer(r, body)
	}
	status := http.StatusOK
	switch {
	case errors.Is(err, ErrGone):
		panic(http.ErrAbortHandler)
	case errors.Is(err, errStranger):
		http.Error(w, `{"error":{"code":"unauthorized"}}`, http.StatusUnauthorized)
		return
	case errors.As(err, &refused):
		status, answer = http.StatusConflict, contract.ErrorBody{Error: *refused}
	case err != nil:
		status, answer = http.StatusInternalServerError, contract.ErrorBody{Error: contract.Error{Code: contract.CodeInternal, Message: err.Error()}}
	}
	v.send(w, r, status, answer)
}

var errStranger = errors.New("wrong signature")

// verify checks the signature. net/http repeats a GET, with the same nonce, if its
// connection was closed; that is answered as replayed.
func (v *VM) verify(r *http.Request) error {
	if isOpen(r) {
		return nil
	}
	switch _, err := v.verifier.Verify(r); {
	case errors.Is(err, auth.ErrReplayed):
		return &contract.Error{Code: contract.CodeReplayed, Message: "this request was seen before", Retryable: true}
	case err != nil:
		return errStranger
	}
	return nil
}

// send writes an answer: bytes unchanged, everything else as JSON.
func (v *VM) send(w http.ResponseWriter, r *http.Request, status int, answer any) {
	v.reply(w, r, Reply{Status: status, Body: answer})
}

// isOpen reports whether a request needs no signature, as an unsigned GET /health.
func isOpen(r *http.Request) bool {
	return r.URL.Path == contract.PathHealth && r.Header.Get(auth.HeaderSignature) == ""
}

func (v *VM) answer(r *http.Request, body []byte) (any, error) {
	switch route := r.Method + " " + r.URL.Path; route {
	case "GET " + contract.PathHealth:
		return contract.Health{Status: "ok", Version: "fake", Protocol: contract.Protocol}, nil
	case "GET " + contract.PathKernel:
		return contract.Kernel{Status: contract.KernelIdle, KernelID: "kernel-1", Python: "3.12.1"}, nil
	case "GET " + contract.PathFiles:
		return v.list(r.URL.Query())
	case "GET " + contract.PathStat:
		return v.stat(r.URL.Query())
	case "GET " + contract.PathContent:
		return v.content(r.URL.Query())
	case "POST " + contract.PathCompare:
		return v.compare(body)
	case "POST " + contract.PathContents:
		return v.contents(body)
	case "POST " + contract.PathUploadBatch:
		return v.batch(body)
	case "POST " + contract.PathUploads:
		return v.startUpload(body)
	default:
		return v.answerUpload(r, body)
	}
}
