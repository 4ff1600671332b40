package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/executor/execution"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

func TestAPanicIsAnsweredSignedAndItsTextStaysInTheLog(t *testing.T) {
	s := standWith(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Leak", "half an answer")
		panic("boiler burst")
	})
	res := s.call("GET", "/x", nil)
	e := res.want(t, http.StatusInternalServerError, contract.CodeInternal)
	if strings.Contains(string(res.body), "boiler burst") {
		t.Errorf("answer contains the cause: %s", res.body)
	}
	if log := s.log.String(); !strings.Contains(log, "boiler burst") || !strings.Contains(log, e.RequestID) {
		t.Errorf("log is %s", log)
	}
}

func TestTheLogContainsNoUserInputAndNoKeys(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	const marker = "MARKER123"
	body := []byte(`{"request_id":"` + marker + `*","code":"` + marker + `"}`)
	req := s.request("POST", contract.PathExecutions+"?q="+marker, body)
	req.Header.Set("Extra", marker)
	s.signed(req, body).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	s.call("GET", "/v1/"+marker, nil)
	s.do(s.request("GET", "/"+marker, nil))
	log := s.log.String()
	if strings.Contains(log, marker) || strings.Contains(log, s.secret.Reveal()) {
		t.Fatalf("log is %s", log)
	}
	if n := len(lines(log)); n != 3 {
		t.Fatalf("%d lines for 3 requests: %s", n, log)
	}
}

func TestASubmitIsCheckedBeforeItReachesTheQueue(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{}) // an accepted submit would panic
	for name, tc := range map[string]struct{ body, names string }{
		"an array":         {`[]`, "request body"},
		"invalid UTF-8":    {"{\"request_id\":\"a\",\"code\":\"\xff\"}", "UTF-8"},
		"odd request_id":   {`{"request_id":"a/b","code":"1"}`, "request_id"},
		"blank code":       {`{"request_id":"a","code":" \n\t"}`, "code"},
		"code with NUL":    {`{"request_id":"a","code":"a\u0000"}`, "code"},
		"negative timeout": {`{"request_id":"a","code":"1","timeout_seconds":-1}`, "timeout_seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(tc.body)
			e := s.signed(s.request("POST", contract.PathExecutions, body), body).
				want(t, http.StatusBadRequest, contract.CodeBadRequest)
			if !strings.Contains(e.Message, tc.names) {
				t.Errorf("message is %q, want it to name %q", e.Message, tc.names)
			}
		})
	}
}

func TestTheNumbersOfASubmitAreBounded(t *testing.T) {
	s := contract.Submit{
		RequestID: strings.Repeat("a", 128), Code: "1", TimeoutSeconds: contract.MaxTimeout.Seconds(), WaitSeconds: 50, OutputAfterSeconds: 50,
	}
	p := &parameters{}
	if wait, _ := p.checkSubmit(s); p.err != nil || wait != contract.MaxWait || !p.waits {
		t.Errorf("at every bound: wait %v, %v", wait, p.err)
	}
	for name, over := range map[string]func(s *contract.Submit){
		"request_id":           func(s *contract.Submit) { s.RequestID += "a" },
		"timeout_seconds":      func(s *contract.Submit) { s.TimeoutSeconds = math.Nextafter(s.TimeoutSeconds, math.Inf(1)) },
		"wait_seconds":         func(s *contract.Submit) { s.WaitSeconds = math.Nextafter(s.WaitSeconds, math.Inf(1)) },
		"output_after_seconds": func(s *contract.Submit) { s.OutputAfterSeconds = math.Nextafter(s.OutputAfterSeconds, math.Inf(1)) },
	} {
		past := s
		over(&past)
		p := &parameters{}
		if p.checkSubmit(past); p.err == nil || !strings.HasPrefix(p.err.Error(), name+":") {
			t.Errorf("%s past its bound: %v", name, p.err)
		}
	}
}

func TestQueryNumbersAreCheckedByName(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	for _, tc := range []struct{ path, names string }{
		{"/v1/executions/x?offset=-1", "offset"},
		{"/v1/executions/x?wait_seconds=NaN", "wait_seconds"},
		{"/v1/executions/x?behind_input=1", "behind_input"},
		{"/v1/variables/inspect", "name"},
		{"/v1/variables/inspect?name=" + strings.Repeat("a", 1001), "name"},
	} {
		e := s.call("GET", tc.path, nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
		if !strings.HasPrefix(e.Message, tc.names) {
			t.Errorf("%.60s: message is %q, want it to name %q", tc.path, e.Message, tc.names)
		}
	}
}

// At its bound a number passes this check, and the answer is about the execution.
func TestQueryNumbersAtTheirBounds(t *testing.T) {
	s := newStand(t)
	j, err := journal.Open(journal.Config{Dir: t.TempDir(), Log: s.api.Log})
	must(t, err)
	s.api.Attach(Backend{Journal: j})
	for at, bound := range map[string]int64{
		"/v1/executions?limit=":                     contract.MaxListExecutions,
		"/v1/executions/x?max_bytes=":               contract.MaxReadBytes,
		"/v1/executions/x?wait_seconds=":            int64(contract.MaxWait.Seconds()),
		"/v1/executions/x/blobs/1?length=":          contract.MaxBlobPart,
		"/v1/executions/x/blobs/1?offset=1&length=": contract.MaxBlobPart,
	} {
		if res := s.call("GET", at+fmt.Sprint(bound), nil); res.StatusCode != http.StatusOK && res.error(t).Code != contract.CodeNotFound {
			t.Errorf("%s%d: %d %s", at, bound, res.StatusCode, res.body)
		}
		s.call("GET", at+fmt.Sprint(bound+1), nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	}
}

func TestInvalidIDsAreUnknown(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	for _, path := range []string{
		"/v1/executions/..%2f..%2fetc", "/v1/executions/" + strings.Repeat("a", 65),
		"/v1/executions/x/blobs/..%2fkey", "/v1/executions/x/blobs/0", "/v1/executions/x/blobs/10001",
	} {
		s.call("GET", path, nil).want(t, http.StatusNotFound, contract.CodeNotFound)
	}
}

func TestTheTextOfAnUnknownErrorIsNotSent(t *testing.T) {
	status, e := translate(errors.New("open /root/.secret: denied"))
	if status != 500 || e.Code != contract.CodeInternal || e.Message != "internal error" {
		t.Fatalf("answered %d %+v", status, e)
	}
}

// newLiveStand is an API over a real kernel.
func newLiveStand(t *testing.T) *stand {
	t.Helper()
	s := newStand(t)
	python, err := kernel.Find(t.Context(), nil, stacks.Old(t).Python, os.Environ())
	must(t, err)
	work := t.TempDir()
	state := filepath.Join(work, ".state")
	must(t, os.Mkdir(state, 0o700))
	log := slog.New(slog.DiscardHandler)
	b := Backend{
		Kernel: kernel.New(kernel.Config{Python: python, WorkDir: work, StateDir: state, Environ: os.Environ(), Place: t.Name(), Log: log}),
		Prober: probe.New(probe.Config{WorkDir: work, Python: python.Path, Started: time.Now(), Environ: os.Environ()}),
	}
	b.Journal, err = journal.Open(journal.Config{Dir: filepath.Join(state, "executions"), Log: log})
	must(t, err)
	b.Queue = execution.New(execution.Config{
		Kernel: b.Kernel, Journal: b.Journal, Log: log,
		Memory: func() (uint64, uint64, error) { return 1, 1 << 40, nil },
	})
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
	must(s.t, json.Unmarshal(r.body, &v))
	return v
}

// submit runs code to its end.
func (s *stand) submit(requestID, code string) contract.Execution {
	s.t.Helper()
	e := into[contract.Execution](s, s.call("POST", contract.PathExecutions, contract.Submit{RequestID: requestID, Code: code, WaitSeconds: 50}))
	within.Until(s.t, "the execution has ended", func() bool {
		if !e.End {
			e = into[contract.Execution](s, s.call("GET", contract.PathExecutions+"/"+e.ExecutionID+"?wait_seconds=50", nil))
		}
		return e.End
	})
	return e
}

// A restart or cleanup that was meant for an earlier kernel leaves the new one its variables.
func TestALateRestartOrCleanupDeletesNothing(t *testing.T) {
	t.Parallel()
	s := newLiveStand(t)
	restart := func(id string) contract.Kernel {
		return into[contract.Kernel](s, s.call("POST", contract.PathKernelRestart, contract.KernelRef{KernelID: id}))
	}
	before := into[contract.Kernel](s, s.call("GET", contract.PathKernel, nil))
	after := restart(before.KernelID)
	if before.KernelID == "" || after.KernelID == before.KernelID || after.KernelsStarted != before.KernelsStarted+1 {
		t.Fatalf("kernel %+v after a restart of %+v", after, before)
	}
	s.submit("set", "mine = 1")
	for _, late := range []string{before.KernelID, ""} {
		if k := restart(late); k.KernelID != after.KernelID || k.KernelsStarted != after.KernelsStarted {
			t.Errorf("a late restart of %q gives %+v", late, k)
		}
		s.call("POST", contract.PathCleanup, contract.KernelRef{KernelID: late}).want(t, http.StatusConflict, contract.CodeConflict)
	}
	if e := s.submit("get", "mine"); e.Status != contract.StatusSucceeded {
		t.Errorf("the variables are gone: %+v", e.Error)
	}
}
