// Package kerneltest gives real kernels to the tests of packages that need one. It is for tests only.
// Start reading at Take.
package kerneltest

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/executor/kernel"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// Life is a kernel that one test after another uses.
type Life struct {
	*kernel.Supervisor
	ID   string
	Stop func() // may be called more than once
}

// idle are kernels that earlier tests left as they were started, but for variables, by their stacks:
// to start one takes longer than most tests.
var idle = struct {
	sync.Mutex
	kernels map[string][]*Life
}{kernels: map[string][]*Life{}}

// Main is for TestMain: it ends the idle kernels before it looks for leaked goroutines.
func Main(m *testing.M) { goleak.VerifyTestMain(endsKernels{m}) }

type endsKernels struct{ m *testing.M }

func (e endsKernels) Run() int {
	code := e.m.Run()
	for _, kernels := range idle.kernels {
		for _, k := range kernels {
			k.Stop()
		}
	}
	return code
}

// Take returns a kernel of the stack that nobody else uses.
func Take(t testing.TB, s stacks.Stack) *Life {
	t.Helper()
	idle.Lock()
	all := idle.kernels[s.Name]
	if n := len(all); n > 0 {
		k := all[n-1] // before another test puts one in its place
		idle.kernels[s.Name] = all[:n-1]
		idle.Unlock()
		return k
	}
	idle.Unlock()
	return Start(t, s)
}

// Put keeps a kernel for the next test, unless it is another one now.
func Put(s stacks.Stack, k *Life) {
	if k.Status().KernelID != k.ID {
		k.Stop()
		return
	}
	idle.Lock()
	defer idle.Unlock()
	idle.kernels[s.Name] = append(idle.kernels[s.Name], k)
}

// Start starts a kernel.
func Start(t testing.TB, s stacks.Stack) *Life {
	t.Helper()
	python, err := kernel.Find(within.Context(t), nil, s.Python, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "kernel-*") // outlives the test
	if err != nil {
		t.Fatal(err)
	}
	k := kernel.New(kernel.Config{Python: python, WorkDir: dir, StateDir: dir, Environ: os.Environ(), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	l := &Life{Supervisor: k, Stop: sync.OnceFunc(func() {
		cancel()
		<-ended
		os.RemoveAll(dir)
	})}
	if _, err := k.Await(within.Context(t)); err != nil {
		l.Stop()
		t.Fatal(err)
	}
	l.ID = k.Status().KernelID
	return l
}
