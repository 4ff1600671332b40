package op

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

// fakeExecutor answers requests with what a test sets: states a real
// executor can't be brought into at will. shared/e2e runs the same tools
// against the real one.
type fakeExecutor struct {
	*httptest.Server
	secret auth.Secret

	mu       sync.Mutex
	executor *linetest.Executor
	answers  map[string]func(r *http.Request, body []byte) (int, any) // by "METHOD /path"
	asked    map[string]int
}

func newFake(t *testing.T) *fakeExecutor {
	t.Helper()
	f := unserved()
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// unserved is a fake without a server.
func unserved() *fakeExecutor {
	secret := auth.GenerateSecret()
	f := &fakeExecutor{
		secret:  secret,
		answers: map[string]func(*http.Request, []byte) (int, any){}, asked: map[string]int{},
	}
	f.replace("instance-1")
	f.answer("GET", contract.PathKernel, contract.Kernel{Status: contract.KernelIdle, KernelID: "kernel-1", Python: "3.12"})
	return f
}

// replace makes the fake another VM, whose executor remembers nothing.
func (f *fakeExecutor) replace(instanceID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.executor = linetest.NewExecutor(f.secret, contract.Instance{ID: instanceID, Start: "start-1"}, time.Now)
}

// answer sets a fixed answer; a *contract.Error is a refusal.
func (f *fakeExecutor) answer(method, path string, v any) {
	f.on(method, path, func(*http.Request, []byte) (int, any) { return http.StatusOK, v })
}

func (f *fakeExecutor) on(method, path string, h func(*http.Request, []byte) (int, any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[method+" "+path] = h
}

func (f *fakeExecutor) count(method, path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[method+" "+path]
}

func (f *fakeExecutor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Method + " " + r.URL.Path
	f.mu.Lock()
	h, ok := f.answers[key]
	f.asked[key]++
	executor := f.executor
	f.mu.Unlock()
	x, body, err := executor.Open(r)
	status, v := 0, any(err)
	switch {
	case err != nil:
	case ok:
		status, v = h(r, body)
	case r.URL.Path == contract.PathHealth:
		v = contract.Health{Status: "ok", Version: "test", Protocol: contract.Protocol, MemoryAvailableGB: 1}
	default:
		status, v = http.StatusNotFound, &contract.Error{Code: contract.CodeNotFound, Message: "nothing at " + key}
	}
	if _, refused := v.(error); refused && status == http.StatusOK {
		status = 0 // that of a refusal
	}
	executor.Reply(w, r, x, status, v)
}

func (f *fakeExecutor) runtime(t *testing.T) runtimes.Runtime {
	t.Helper()
	c, err := client.New(client.Config{BaseURL: f.URL, Secret: f.secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return runtimes.Runtime{Name: "test", URL: f.URL, Client: c}
}

// directly is a runtime whose executor is a handler, without a network.
func directly(t *testing.T, secret auth.Secret, executor http.Handler) runtimes.Runtime {
	t.Helper()
	const url = "http://executor.test"
	c, err := client.New(client.Config{BaseURL: url, Secret: secret, Transport: &direct{handler: executor}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return runtimes.Runtime{Name: "test", URL: url, Client: c}
}

// fakeRun is an execution on the fake: a test appends events and sets the status.
type fakeRun struct {
	mu      sync.Mutex
	changed chan struct{}
	exec    contract.Execution
	events  []contract.Event
	submits []contract.Submit
}

// run makes the fake accept code as one execution of that id.
func (f *fakeExecutor) run(id string) *fakeRun {
	now := time.Now()
	r := &fakeRun{changed: make(chan struct{}), exec: contract.Execution{
		ExecutionID: id, Status: contract.StatusRunning, KernelID: "kernel-1", CreatedAt: now, StartedAt: &now, MemoryBeforeBytes: 1 << 30,
	}}
	f.on("POST", contract.PathExecutions, func(_ *http.Request, body []byte) (int, any) {
		var s contract.Submit
		if err := json.Unmarshal(body, &s); err != nil {
			return 400, &contract.Error{Code: contract.CodeBadRequest, Message: err.Error()}
		}
		r.mu.Lock()
		r.submits = append(r.submits, s)
		r.mu.Unlock()
		return http.StatusOK, r.read(0, s.WaitSeconds, s.OutputAfterSeconds, 4<<20)
	})
	f.on("GET", contract.PathExecutions+"/"+id, func(req *http.Request, _ []byte) (int, any) {
		q := req.URL.Query()
		offset, _ := strconv.ParseInt(q.Get("offset"), 10, 64)
		wait, _ := strconv.ParseFloat(q.Get("wait_seconds"), 64)
		most, _ := strconv.Atoi(q.Get("max_bytes"))
		return http.StatusOK, r.read(offset, wait, always, most)
	})
	return r
}

// submitted are the submits of this execution.
func (r *fakeRun) submitted() []contract.Submit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.submits)
}

func (r *fakeRun) set(change func(e *contract.Execution)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.exec)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *fakeRun) end(s contract.Status) {
	r.set(func(e *contract.Execution) {
		now := time.Now()
		e.Status, e.FinishedAt, e.MemoryAfterBytes = s, &now, 2<<30
	})
}

func (r *fakeRun) event(ev contract.Event) {
	r.set(func(*contract.Execution) {
		ev.Offset = int64(len(r.events))
		r.events = append(r.events, ev)
	})
}

func (r *fakeRun) print(text string) {
	r.event(contract.Event{Type: contract.EventStream, Name: "stdout", Text: text})
}

// always has output answer a read from its beginning on.
const always = -1

// read is the executor's long poll. Output answers it from lively seconds on, never
// when that is 0.
func (r *fakeRun) read(offset int64, wait, lively float64, most int) contract.Execution {
	timeout := time.After(time.Duration(wait * float64(time.Second)))
	var awake <-chan time.Time
	untilEnd := lively != always
	if lively > 0 {
		awake = time.After(time.Duration(lively * float64(time.Second)))
	}
	for {
		r.mu.Lock()
		e, changed := r.exec, r.changed
		ready := e.Status.Finished() || !untilEnd && int64(len(r.events)) > offset || untilEnd && e.Status == contract.StatusWaitingForInput
		bytes := 0
		e.NextOffset = offset
		for _, ev := range r.events[min(offset, int64(len(r.events))):] {
			if bytes += len(ev.Text); bytes > most && len(e.Events) > 0 {
				break
			}
			e.Events = append(e.Events, ev)
			e.NextOffset = ev.Offset + 1
		}
		e.End = e.Status.Finished() && e.NextOffset >= int64(len(r.events))
		r.mu.Unlock()
		if ready {
			return e
		}
		select {
		case <-changed:
		case <-awake:
			untilEnd = false
		case <-timeout:
			return e
		}
	}
}
