// Package fakevm is a fake executor that serves files and jobs from memory. Tests of the relay's
// tools and commands can make it stop in the middle of an answer, disappear or refuse a
// request, which a real executor cannot be made to do. shared/e2e runs the same tools and
// commands against a real executor.
//
// It must not be linked into either program. Start reading at Start, then files.go
// and jobs.go.
package fakevm

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

// VM is a fake executor. Its methods may be called while it serves.
type VM struct {
	URL    string
	Secret auth.Secret
	HangUp func() // closes all connections

	executor *linetest.Executor

	mu      sync.Mutex
	files   map[string][]byte // by path below root
	uploads map[string]*upload
	jobs    map[string]*job
	order   []string                       // ids of jobs, the oldest first
	runs    map[string]*contract.Execution // of entries of jobs
	asked   map[string]int
	hook    Hook
	lie     Lie
	wire    Wire
}

// Hook is called with each request, opened, before it is answered. It may wait until ctx
// ends. If it returns a *contract.Error, that is the answer; ErrGone closes the connection.
type Hook func(ctx context.Context, r *http.Request) error

// instance is the same for all VMs: no test needs two at one address.
var instance = contract.Instance{ID: "instance-1", Start: "start-1"}

const kernelID = "kernel-1"

// ErrGone makes the VM unreachable for one request.
var ErrGone = errors.New("the VM is gone")

// Start starts a VM that serves until the test ends.
func Start(t testing.TB) *VM {
	t.Helper()
	v := New()
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.URL, v.HangUp = s.URL, s.CloseClientConnections
	return v
}

// New returns a VM with a new secret that is not served yet.
func New() *VM { return NewWith(auth.GenerateSecret()) }

// NewWith returns a VM with that secret that is not served yet.
func NewWith(secret auth.Secret) *VM {
	return &VM{
		Secret: secret, executor: linetest.NewExecutor(secret, instance, time.Now),
		files: map[string][]byte{}, uploads: map[string]*upload{}, jobs: map[string]*job{}, runs: map[string]*contract.Execution{}, asked: map[string]int{},
		hook: func(context.Context, *http.Request) error { return nil },
		lie:  func(*http.Request, []byte) (Reply, bool) { return Reply{}, false },
	}
}

// Pairing returns the pairing string for `colab-relay pair`.
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

// ServeHTTP implements http.Handler. net/http repeats a GET, with the same nonce, if its
// connection was closed; that is answered as replayed.
func (v *VM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, body, err := v.executor.Open(r)
	v.mu.Lock()
	v.asked[r.Method+" "+r.URL.Path]++
	hook, lie, wire := v.hook, v.lie, v.wire
	v.mu.Unlock()
	err = cmp.Or(hook(r.Context(), r), err)
	if errors.Is(err, ErrGone) {
		panic(http.ErrAbortHandler)
	}
	reply := Reply{Body: err}
	if err == nil {
		reply = v.replyTo(r, body, lie)
	}
	if wire != nil {
		w = wire(w, r)
	}
	if w != nil {
		v.executor.Reply(w, r, x, reply.Status, reply.Body)
	}
}

// replyTo returns the lie about a request, or else the truth.
func (v *VM) replyTo(r *http.Request, body []byte, lie Lie) Reply {
	if reply, ok := lie(r, body); ok {
		return reply
	}
	return v.Truth(r, body)
}

// Truth is the VM's own answer to a request, for a Lie that changes it.
func (v *VM) Truth(r *http.Request, body []byte) Reply {
	answer, err := v.answer(r, body)
	if err != nil {
		return Reply{Body: err}
	}
	return Reply{Body: answer}
}

func (v *VM) answer(r *http.Request, body []byte) (any, error) {
	switch route := r.Method + " " + r.URL.Path; route {
	case "GET " + contract.PathHealth:
		return contract.Health{Status: "ok", Version: "fake", Protocol: contract.Protocol}, nil
	case "GET " + contract.PathKernel:
		return contract.Kernel{Status: contract.KernelIdle, KernelID: kernelID, Python: "3.12.1"}, nil
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
	}
	if r.URL.Path == contract.PathJobs || strings.HasPrefix(r.URL.Path, contract.PathJobs+"/") {
		return v.answerJob(r, body)
	}
	if x, ok := v.readRun(r); ok && r.Method == http.MethodGet {
		return x, nil
	}
	return v.answerUpload(r, body)
}
