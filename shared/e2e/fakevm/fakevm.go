// Package fakevm is a fake executor that serves files and jobs from memory. Tests of the relay's
// tools and commands can make it stop in the middle of an answer, disappear or refuse a
// request, which a real executor cannot be made to do. shared/e2e runs the same tools and
// commands against a real executor.
//
// It must not be linked into either program. Start reading at Start, then at files.go.
package fakevm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
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
	return v.putPart(r, body)
}

// Lie answers an opened request instead of the VM; its answer is sealed and signed. If it
// returns false, the VM answers.
type Lie func(r *http.Request, body []byte) (Reply, bool)

// Reply is the answer of a Lie.
type Reply struct {
	Status int // default: http.StatusOK
	Body   any // bytes are sent unchanged, an error as a refusal, everything else as JSON
}

// Lies sets the Lie.
func (v *VM) Lies(l Lie) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lie = l
}

// Wire returns where the answer to a request is written, such as a writer that changes its
// bytes. With nil it has answered itself.
type Wire func(w http.ResponseWriter, r *http.Request) http.ResponseWriter

// Wires sets the Wire.
func (v *VM) Wires(w Wire) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wire = w
}

func badRequest(err error) error {
	return &contract.Error{Code: contract.CodeBadRequest, Message: err.Error()}
}

// compare does not consider numbered names: a file with different content is absent.
func (v *VM) compare(body []byte) (contract.Comparison, error) {
	var m contract.Manifest
	if err := json.Unmarshal(body, &m); err != nil {
		return contract.Comparison{}, badRequest(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var out contract.Comparison
	for _, f := range m.Files {
		one := contract.Compared{State: contract.StateAbsent}
		name := at(path.Join(m.Path, f.Name))
		switch content, ok := v.files[name]; {
		case ok && f.SHA256 == "" && len(content) == int(f.SizeBytes):
			one = contract.Compared{State: contract.StateUnknown, SHA256: Digest(content)}
		case ok && Digest(content) == f.SHA256:
			one = contract.Compared{State: contract.StateSame, Path: name, ETag: Digest(content)[:16]}
		case ok && f.Replaces != "" && Digest(content) != f.Replaces:
			one = contract.Compared{State: contract.StateTaken}
		}
		out.Files = append(out.Files, one)
	}
	return out, nil
}

func (v *VM) batch(body []byte) (contract.BatchAnswer, error) {
	var m contract.Manifest
	files, index, err := contract.SplitBatch(body)
	if err == nil {
		err = json.Unmarshal(index, &m)
	}
	if err != nil {
		return contract.BatchAnswer{}, badRequest(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var out contract.BatchAnswer
	for _, f := range m.Files {
		content := files[:f.SizeBytes]
		files = files[f.SizeBytes:]
		start := contract.UploadStart{Path: path.Join(m.Path, f.Name), SizeBytes: f.SizeBytes, Overwrite: m.Overwrite, Replaces: f.Replaces}
		switch {
		case strings.HasSuffix(f.Name, "/"), f.Executable && f.SHA256 == "": // a folder exists if a file is in it
			out.Files = append(out.Files, contract.BatchedFile{Path: at(start.Path)})
		case Digest(content) != f.SHA256:
			out.Files = append(out.Files, contract.BatchedFile{Error: &contract.Error{Code: contract.CodeChanged, Message: "the SHA-256 differs"}})
		default:
			name, err := v.placeLocked(start, f.SHA256)
			var refused *contract.Error
			if errors.As(err, &refused) {
				out.Files = append(out.Files, contract.BatchedFile{Error: refused})
				continue
			}
			v.files[name] = bytes.Clone(content)
			out.Files = append(out.Files, contract.BatchedFile{Path: name, ETag: f.SHA256[:16]})
		}
	}
	return out, nil
}

func (v *VM) contents(body []byte) ([]byte, error) {
	var asked contract.ReadBatch
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, badRequest(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []byte
	var index contract.Contents
	for _, name := range asked.Paths {
		st, err := v.findLocked(name)
		var refused *contract.Error
		switch {
		case errors.As(err, &refused):
			index.Files = append(index.Files, contract.Content{Error: refused})
		case st.SizeBytes > contract.MaxBatchFile:
			index.Files = append(index.Files, contract.Content{Error: &contract.Error{Code: contract.CodeTooLarge, Message: "too large"}})
		default:
			all = append(all, v.files[st.Path]...)
			index.Files = append(index.Files, contract.Content{SizeBytes: st.SizeBytes, ETag: st.ETag, Modified: st.Modified})
		}
	}
	return contract.AppendIndex(all, index)
}

// upload is an upload that was started.
type upload struct {
	start contract.UploadStart
	bytes []byte
	came  []contract.Range
	path  string // after the commit
	sha   string
}

func (v *VM) startUpload(body []byte) (contract.Upload, error) {
	var s contract.UploadStart
	if err := json.Unmarshal(body, &s); err != nil {
		return contract.Upload{}, badRequest(err)
	}
	if strings.HasSuffix(s.Path, "/") {
		return contract.Upload{Status: contract.UploadCommitted, Path: at(s.Path), Missing: []contract.Range{}}, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	id := Digest(fmt.Appendf(nil, "%q %d %q %v%s", s.Path, s.SizeBytes, s.Version, s.Overwrite, s.Replaces))[:32]
	u := v.uploads[id]
	switch {
	case s.SHA256 != "" && u == nil:
		return contract.Upload{}, &contract.Error{Code: contract.CodeNotFound, Message: "no such upload"}
	case s.SHA256 != "" && len(u.missing()) == 0:
		if Digest(u.bytes) != s.SHA256 {
			delete(v.uploads, id)
			return contract.Upload{}, &contract.Error{Code: contract.CodeChanged, Message: "the SHA-256 differs"}
		}
		if u.path == "" {
			placed, err := v.placeLocked(u.start, s.SHA256)
			if err != nil {
				return contract.Upload{}, err
			}
			u.path, u.sha = placed, s.SHA256
			v.files[u.path] = u.bytes
		}
	case u == nil || u.path != "" && Digest(v.files[u.path]) != u.sha:
		u = &upload{start: s, bytes: make([]byte, s.SizeBytes)}
		v.uploads[id] = u
	}
	return u.state(id), nil
}

// putPart receives a part of an upload.
func (v *VM) putPart(r *http.Request, body []byte) (any, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	u := v.uploads[strings.TrimPrefix(r.URL.Path, contract.PathUploads+"/")]
	if u == nil || r.Method != http.MethodPut {
		return nil, &contract.Error{Code: contract.CodeNotFound, Message: fmt.Sprintf("no route %s %s", r.Method, r.URL.Path)}
	}
	offset, err := strconv.Atoi(r.URL.Query().Get("offset"))
	if err != nil || offset < 0 || offset+len(body) > len(u.bytes) {
		return nil, &contract.Error{Code: contract.CodeBadRequest, Message: "offset"}
	}
	copy(u.bytes[offset:], body)
	u.came = append(u.came, contract.Range{Offset: int64(offset), Length: int64(len(body))})
	return struct{}{}, nil
}

// placeLocked returns the path for an uploaded file. An existing different file is kept
// unless the upload overwrites it or may replace it.
func (v *VM) placeLocked(start contract.UploadStart, sha string) (string, error) {
	name := at(start.Path)
	if there, taken := v.files[name]; taken && !start.Overwrite && Digest(there) != sha && Digest(there) != start.Replaces {
		return "", &contract.Error{Code: contract.CodeConflict, Message: "a different file is there"}
	}
	return name, nil
}

// missing returns the ranges that have not been received, in order.
func (u *upload) missing() []contract.Range {
	slices.SortFunc(u.came, func(a, b contract.Range) int { return cmp.Compare(a.Offset, b.Offset) })
	all, at := []contract.Range{}, int64(0)
	for _, r := range append(slices.Clip(u.came), contract.Range{Offset: u.start.SizeBytes}) {
		if r.Offset > at {
			all = append(all, contract.Range{Offset: at, Length: r.Offset - at})
		}
		at = max(at, r.Offset+r.Length)
	}
	return all
}

func (u *upload) state(id string) contract.Upload {
	s := contract.Upload{UploadID: id, Status: contract.UploadReceiving, Path: u.start.Path, Missing: u.missing()}
	if u.path != "" {
		s.Status, s.Path = contract.UploadCommitted, u.path
	}
	return s
}
