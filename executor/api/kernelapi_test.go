package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
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

// newLiveStand is an API over a real kernel.
func newLiveStand(t *testing.T) *stand {
	t.Helper()
	s := newStand(t)
	python, err := kernel.Find(t.Context(), nil, stacks.Old(t).Python, os.Environ())
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
	if b.Journal, err = journal.Open(journal.Config{Dir: filepath.Join(state, "executions"), Log: log}); err != nil {
		t.Fatal(err)
	}
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
	if err := json.Unmarshal(r.body, &v); err != nil {
		s.t.Fatal(err)
	}
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

func TestShutdownIsAnsweredBeforeItStarts(t *testing.T) {
	s := newStand(t)
	began := make(chan struct{})
	s.api.Shutdown = func() { close(began) }
	s.api.Attach(Backend{})
	if got := into[contract.Shutdown](s, s.call("POST", contract.PathShutdown, nil)); got.Status == "" {
		t.Errorf("answer is %+v", got)
	}
	within.Receive(t, "the shutdown begins", began)
}
