package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"colabrelay/executor/execution"
	"colabrelay/executor/files"
	"colabrelay/executor/job"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// newLiveStand is an API over a real kernel. Its instance is unique, because an executor
// deletes the temporary folders that an earlier one of the same instance has left.
func newLiveStand(t testing.TB, stack stacks.Stack) *stand {
	t.Helper()
	s := newStand(t)
	python, err := kernel.Find(t.Context(), nil, stack.Python, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	state := filepath.Join(work, ".state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	b := Backend{
		Kernel: kernel.New(kernel.Config{Python: python, WorkDir: work, StateDir: state, Environ: os.Environ(), Place: t.Name(), Log: log}),
		Prober: probe.New(probe.Config{WorkDir: work, Python: python.Path, Started: time.Now(), Getenv: os.Getenv}),
	}
	if b.Files, err = files.Open(work, nil, state, nil); err != nil {
		t.Fatal(err)
	}
	if b.Journal, err = journal.Open(journal.Config{Dir: filepath.Join(state, "executions"), Log: log}); err != nil {
		t.Fatal(err)
	}
	b.Queue = execution.New(execution.Config{
		Kernel: b.Kernel, Journal: b.Journal, Log: log,
		Memory: func() (uint64, uint64, error) { m, err := probe.Memory(); return m.Used, m.Available, err },
	})
	if b.Jobs, err = job.Open(job.Config{Dir: filepath.Join(state, "jobs"), Queue: b.Queue, Journal: b.Journal, Log: log}); err != nil {
		t.Fatal(err)
	}
	queueCtx, endQueue := context.WithCancel(context.Background())
	kernelCtx, endKernel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return b.Kernel.Run(kernelCtx) })
	g.Go(func() error { defer endKernel(); return b.Queue.Run(queueCtx) })
	t.Cleanup(func() {
		endQueue()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	s.api.Attach(b)
	if _, err := b.Kernel.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// into decodes a successful answer.
func into[T any](s *stand, r reply) T {
	s.t.Helper()
	var v T
	if r.StatusCode != http.StatusOK {
		s.t.Fatalf("answer is %d %s", r.StatusCode, r.body)
	}
	if err := json.Unmarshal(r.body, &v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

var submits atomic.Int64 // of all tests, which may run in parallel

func (s *stand) submit(code string, wait float64) contract.Execution {
	s.t.Helper()
	return into[contract.Execution](s, s.call("POST", contract.PathExecutions, contract.Submit{
		RequestID: fmt.Sprintf("test-%d", submits.Add(1)), Code: code, TimeoutSeconds: 60, WaitSeconds: wait,
	}))
}

func (s *stand) read(id, query string) contract.Execution {
	s.t.Helper()
	return into[contract.Execution](s, s.call("GET", contract.PathExecutions+"/"+id+query, nil))
}

// running starts an endless loop and returns once the kernel is in it; stop ends it.
func (s *stand) running() (id string, stop func()) {
	s.t.Helper()
	id = s.submit("print('in it', flush=True)\nimport time\nwhile True: time.sleep(0.01)", 0).ExecutionID
	text, next := "", int64(0)
	for text != "in it\n" { // the line break may be an event of its own
		page := s.read(id, fmt.Sprintf("?offset=%d&wait_seconds=20", next))
		for _, event := range page.Events {
			text += event.Text
		}
		next = page.NextOffset
	}
	return id, func() {
		s.t.Helper()
		if e := into[contract.Execution](s, s.call("POST", contract.PathExecutions+"/"+id+"/interrupt", nil)); e.Status != contract.StatusInterrupted {
			s.t.Errorf("interrupted execution is %s", e.Status)
		}
	}
}

func TestEachEndpointWithARealKernel(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, stack stacks.Stack) {
		t.Parallel()
		checkEndpoints(t, newLiveStand(t, stack))
	})
}

func checkEndpoints(t *testing.T, s *stand) {
	for name, check := range map[string]func(*testing.T, *stand){
		"submit":          checkSubmitting,
		"read":            checkReading,
		"interrupt":       checkInterrupting,
		"input":           checkInput,
		"blob":            checkBlob,
		"list executions": checkListing,
		"kernel":          checkKernel,
		"namespace":       checkNamespace,
		"probe":           checkProbe,
		"files":           checkFiles,
		"caller gone":     checkCallerGone,
	} {
		t.Run(name, func(t *testing.T) {
			inner := *s
			inner.t = t
			check(t, &inner)
		})
	}
}

func checkSubmitting(t *testing.T, s *stand) {
	body := contract.Submit{RequestID: "once", Code: "40+2", WaitSeconds: 20}
	e := into[contract.Execution](s, s.call("POST", contract.PathExecutions, body))
	if e.Status != contract.StatusSucceeded || !e.End || len(e.Events) != 1 || string(e.Events[0].Data["text/plain"]) != `"42"` {
		t.Fatalf("one round trip gives %+v", e)
	}
	if again := into[contract.Execution](s, s.call("POST", contract.PathExecutions, body)); again.ExecutionID != e.ExecutionID || again.ExecutionCount != e.ExecutionCount {
		t.Errorf("the same request ran twice: %+v", again)
	}
	body.Code = "41+2"
	s.call("POST", contract.PathExecutions, body).want(t, http.StatusConflict, contract.CodeConflict)
	if e := s.submit("raise ValueError('x')", 20); e.Status != contract.StatusFailed || e.Error == nil || e.Error.EName != "ValueError" {
		t.Errorf("a Python exception gives %+v", e)
	}
}

func checkReading(t *testing.T, s *stand) {
	e := s.submit("print('a', flush=True)\nimport time; time.sleep(0.3)\nprint('b')", 20)
	text := ""
	for offset := int64(0); ; {
		page := s.read(e.ExecutionID, fmt.Sprintf("?offset=%d&max_bytes=1&wait_seconds=5", offset))
		for _, event := range page.Events {
			text += event.Text
		}
		if page.End {
			break
		}
		if page.NextOffset <= offset {
			t.Fatalf("a page at %d leads to %d", offset, page.NextOffset)
		}
		offset = page.NextOffset
	}
	if text != "a\nb\n" {
		t.Errorf("pages give %q", text)
	}
	s.call("GET", contract.PathExecutions+"/"+e.ExecutionID+"?offset=99", nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	s.call("GET", contract.PathExecutions+"/nothing", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
}

func checkInterrupting(t *testing.T, s *stand) {
	id, stop := s.running()
	next := s.read(id, "").NextOffset
	began := time.Now()
	if e := s.read(id, fmt.Sprintf("?offset=%d&wait_seconds=0.2", next)); e.Status != contract.StatusRunning || time.Since(began) < 200*time.Millisecond {
		t.Errorf("a poll of nothing new gives %s after %v", e.Status, time.Since(began))
	}
	waiting := s.submit("1", 0).ExecutionID
	if e := into[contract.Execution](s, s.call("POST", contract.PathExecutions+"/"+waiting+"/interrupt", nil)); e.Status != contract.StatusCancelled {
		t.Errorf("interrupted while it waits, it is %s", e.Status)
	}
	stop()
	s.call("POST", contract.PathExecutions+"/"+id+"/interrupt", nil).want(t, http.StatusConflict, contract.CodeConflict)
	s.call("POST", contract.PathExecutions+"/nothing/interrupt", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
}

func checkInput(t *testing.T, s *stand) {
	e := s.submit("x = input('name? ')\nprint(x)", 20)
	if e.Status != contract.StatusWaitingForInput {
		t.Fatalf("status is %s", e.Status)
	}
	path := contract.PathExecutions + "/" + e.ExecutionID + "/input"
	s.call("POST", path, map[string]any{"text": "Ada", "offset": -1}).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	s.call("POST", path, contract.Input{Text: "Ada", Offset: &e.NextOffset}).want(t, http.StatusConflict, contract.CodeConflict)
	into[contract.Execution](s, s.call("POST", path, contract.Input{Text: "Ada", Offset: &e.Events[len(e.Events)-1].Offset}))
	within.Until(t, "the run has succeeded", func() bool { return s.read(e.ExecutionID, "?wait_seconds=5").Status == contract.StatusSucceeded })
	s.call("POST", path, contract.Input{Text: "late"}).want(t, http.StatusConflict, contract.CodeConflict)

	e = s.submit("import getpass\nprint(len(getpass.getpass('key: ')))", 20)
	path = contract.PathExecutions + "/" + e.ExecutionID + "/input"
	s.call("POST", path, contract.Input{Text: "hunter2"}).want(t, http.StatusConflict, contract.CodePasswordPrompt)
	next := into[contract.Execution](s, s.call("POST", contract.PathExecutions, contract.Submit{
		RequestID: "behind-" + e.ExecutionID, Code: "1", WaitSeconds: 50, BehindInput: true,
	}))
	want := &contract.Behind{ExecutionID: e.ExecutionID, Status: contract.StatusWaitingForInput, Prompt: "key: ", Password: true}
	if diff := cmp.Diff(want, next.Behind); diff != "" || next.Status != contract.StatusQueued {
		t.Errorf("%s behind (-want +got):\n%s", next.Status, diff)
	}
	if again := s.read(next.ExecutionID, "?wait_seconds=50&behind_input=true"); again.Behind == nil {
		t.Errorf("a read: %+v", again)
	}
	into[contract.Execution](s, s.call("POST", path, contract.Input{Text: "hunter2", Password: true}))
	within.Until(t, "the run has succeeded", func() bool { return s.read(e.ExecutionID, "?wait_seconds=5").Status == contract.StatusSucceeded })
}

func checkBlob(t *testing.T, s *stand) {
	e := s.submit("from IPython.display import HTML, display\ndisplay(HTML('<p>' + 'é' * 100_000))", 20)
	var ref contract.BlobRef
	for _, event := range e.Events {
		if raw, ok := event.Data["text/html"]; ok && json.Unmarshal(raw, &ref) != nil {
			t.Fatalf("html is %.100s", raw)
		}
	}
	path := contract.PathExecutions + "/" + e.ExecutionID + "/blobs/1"
	var whole []byte
	for {
		res := s.call("GET", fmt.Sprintf("%s?offset=%d&length=70000", path, len(whole)), nil)
		if res.StatusCode != http.StatusOK || len(res.body) == 0 {
			break
		}
		whole = append(whole, res.body...)
	}
	got := contract.Blob{Number: 1, SHA256: fmt.Sprintf("%x", sha256.Sum256(whole)), Bytes: int64(len(whole))}
	if diff := cmp.Diff(ref.Blob, got); diff != "" || len(whole) == 0 {
		t.Errorf("the blob (-want +got):\n%s", diff)
	}
	s.call("GET", contract.PathExecutions+"/"+e.ExecutionID+"/blobs/2", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
}

func checkListing(t *testing.T, s *stand) {
	e := s.submit("secret_of_mine = 1", 20)
	list := into[contract.ExecutionList](s, s.call("GET", contract.PathExecutions+"?limit=1", nil))
	if len(list.Executions) != 1 || list.Executions[0].ExecutionID != e.ExecutionID || list.Executions[0].CodePreview != "secret_of_mine = 1" {
		t.Errorf("list is %+v", list)
	}
}

func checkKernel(t *testing.T, s *stand) {
	within.Until(t, "the queue is empty", func() bool { return !s.api.Queue.Busy() }) // an earlier check's run may be ending
	before := into[contract.Kernel](s, s.call("GET", contract.PathKernel, nil))
	if before.Status != contract.KernelIdle || before.KernelID == "" || before.PID == 0 || before.IPyKernel == "" {
		t.Errorf("kernel is %+v", before)
	}
	id, _ := s.running()
	if k := into[contract.Kernel](s, s.call("GET", contract.PathKernel, nil)); k.Status != contract.KernelBusy {
		t.Errorf("status during a run is %s", k.Status)
	}
	after := into[contract.Kernel](s, s.call("POST", contract.PathKernelRestart, contract.KernelRef{KernelID: before.KernelID}))
	if after.KernelID == before.KernelID || after.KernelsStarted != before.KernelsStarted+1 {
		t.Errorf("kernel after a restart is %+v", after)
	}
	if e := s.read(id, "?offset=1&wait_seconds=5"); !e.Status.Finished() {
		t.Errorf("the execution a restart ended is %s", e.Status)
	}
}

func checkNamespace(t *testing.T, s *stand) {
	s.submit("mine = [1, 2, 3]", 20)
	all := into[contract.Variables](s, s.call("GET", contract.PathVariables, nil))
	found := false
	for _, v := range all.Variables {
		found = found || v.Name == "mine" && v.Type == "list"
	}
	if !found || all.KernelID == "" {
		t.Errorf("variables are %+v", all)
	}
	if v := into[contract.Inspection](s, s.call("GET", contract.PathInspect+"?name=mine", nil)); v.Preview == "" || v.KernelID == "" {
		t.Errorf("inspection is %+v", v)
	}
	for _, name := range []string{"nobodys", strings.Repeat("n", maxNameLen)} { // one byte more is refused: see TestQueryNumbersAreCheckedByName
		s.call("GET", contract.PathInspect+"?name="+name, nil).want(t, http.StatusNotFound, contract.CodeNotFound)
	}

	_, stop := s.running()
	here := contract.KernelRef{KernelID: all.KernelID}
	for _, ask := range [][2]string{{"GET", contract.PathVariables}, {"GET", contract.PathInspect + "?name=mine"}, {"POST", contract.PathCleanup}} {
		s.call(ask[0], ask[1], here).want(t, http.StatusConflict, contract.CodeKernelBusy)
	}
	stop()
	c := into[contract.Cleanup](s, s.call("POST", contract.PathCleanup, here))
	if c.VariablesCleared == 0 || c.MemoryBeforeBytes == 0 || c.MemoryAfterBytes == 0 || c.MemoryFreeBytes == 0 || c.KernelID == "" {
		t.Errorf("cleanup is %+v", c)
	}
	s.call("GET", contract.PathInspect+"?name=mine", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
}

func checkProbe(t *testing.T, s *stand) {
	s.submit("seen_by_probe = 1", 20)
	p := into[contract.Probe](s, s.call("GET", contract.PathProbe, nil))
	if p.LoadedVariablesCount == nil || !strings.Contains(strings.Join(p.LoadedVariables, " "), "seen_by_probe") {
		t.Errorf("loaded variables are %v", p.LoadedVariables)
	}
	if p.Python.Version == "" || p.Python.IPyKernel == "" {
		t.Errorf("python is %+v", p.Python)
	}
	_, stop := s.running()
	defer stop()
	p = into[contract.Probe](s, s.call("GET", contract.PathProbe, nil))
	if p.LoadedVariables != nil || p.LoadedVariablesCount != nil {
		t.Errorf("loaded variables during a run are %v", p.LoadedVariables)
	}
}

func checkFiles(t *testing.T, s *stand) {
	s.submit("open('made by the kernel.txt', 'w').write('hello')", 20)
	out := into[contract.Files](s, s.call("GET", contract.PathFiles+"?path=/content", nil))
	if out.FileCount != 1 || out.Files[0].Name != "made by the kernel.txt" || out.Files[0].SizeBytes != 5 {
		t.Errorf("files are %+v", out)
	}
	s.call("GET", contract.PathFiles+"?path=../etc", nil).want(t, http.StatusForbidden, contract.CodeForbiddenPath)
	s.call("GET", contract.PathFiles+"?path=nothing", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
}

// An execution continues if its caller disconnects.
func checkCallerGone(t *testing.T, s *stand) {
	body := []byte(`{"request_id":"gone","code":"import time; time.sleep(0.5); gone_on = True","wait_seconds":50}`)
	req := s.request("POST", contract.PathExecutions, body)
	s.sign(req, body, time.Now())
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Write(c); err != nil {
		t.Fatal(err)
	}
	within.Until(t, "a run has the kernel", s.api.Queue.Busy)
	c.Close()
	within.Until(t, "the queue is empty", func() bool { return !s.api.Queue.Busy() && s.api.waiting.inUse() == 0 })
	if e := s.submit("gone_on", 20); e.Status != contract.StatusSucceeded {
		t.Errorf("the run did not go on: %+v", e.Error)
	}
}

func TestShutdownIsAnsweredBeforeItStarts(t *testing.T) {
	s := newStand(t)
	began := make(chan struct{})
	s.api.Shutdown = func() { close(began) }
	s.api.Attach(Backend{})
	if got := into[contract.Shutdown](s, s.call("POST", contract.PathShutdown, nil)); got.Status == "" {
		t.Errorf("answer is %+v", got)
	}
	select {
	case <-began:
	case <-time.After(10 * time.Second):
		t.Fatal("the shutdown did not begin")
	}
}
