package execution

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// TestMain ends the shared kernels before it looks for leaked goroutines.
func TestMain(m *testing.M) { goleak.VerifyTestMain(endsKernels{m}) }

type endsKernels struct{ m *testing.M }

func (e endsKernels) Run() int {
	code := e.m.Run()
	idle.end()
	return code
}

// kernels are idle ones that earlier tests left as they were started, but for variables.
// To start one takes longer than most tests.
type kernels struct {
	mu      sync.Mutex
	byStack map[string][]*life
}

var idle = kernels{byStack: map[string][]*life{}}

// life is a kernel that one test after another uses.
type life struct {
	*kernel.Supervisor
	id   string
	stop func()
}

// take returns a kernel of the stack that nobody else uses, nil if there is none.
func (k *kernels) take(s stacks.Stack) *life {
	k.mu.Lock()
	defer k.mu.Unlock()
	if found := k.byStack[s.Name]; len(found) > 0 {
		k.byStack[s.Name] = found[1:]
		return found[0]
	}
	return nil
}

// put keeps a kernel for the next test, unless it is another one now.
func (k *kernels) put(s stacks.Stack, l *life) {
	if l.Status().KernelID != l.id {
		l.stop()
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byStack[s.Name] = append(k.byStack[s.Name], l)
}

func (k *kernels) end() {
	for _, lives := range k.byStack {
		for _, l := range lives {
			l.stop()
		}
	}
}

// startKernel starts a kernel. Its stop may be called more than once.
func startKernel(t testing.TB, s stacks.Stack) *life {
	t.Helper()
	python, err := pythonOf(s)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "execution-kernel-*") // outlives the test
	if err != nil {
		t.Fatal(err)
	}
	k := kernel.New(kernel.Config{
		Python: python, WorkDir: dir, StateDir: dir, Environ: os.Environ(), Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	l := &life{Supervisor: k, stop: sync.OnceFunc(func() {
		cancel()
		<-ended
		os.RemoveAll(dir)
	})}
	if _, err := k.Await(within.Context(t)); err != nil {
		l.stop()
		t.Fatal(err)
	}
	l.id = k.Status().KernelID
	return l
}

var pythons sync.Map // what was found, by the stack's name

// pythonOf looks for a stack's interpreter once.
func pythonOf(s stacks.Stack) (kernel.Python, error) {
	if found, ok := pythons.Load(s.Name); ok {
		return found.(kernel.Python), nil
	}
	python, err := kernel.Find(context.Background(), nil, s.Python, os.Environ())
	if err == nil {
		pythons.Store(s.Name, python)
	}
	return python, err
}

// A kernel that ends between two runs gets no more code, which is no failure of the code.
func TestCodeForAKernelThatHasJustEndedDidNotRun(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := startKernel(t, stacks.Old(t))
	defer l.stop()
	k, err := l.Ready()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Client.Close(); err != nil {
		t.Fatal(err)
	}
	memory := func() (uint64, uint64, error) { return 1 << 30, 8 << 30, nil }
	q := New(Config{Kernel: l.Supervisor, Journal: unstarted(t).journal, Memory: memory, Log: slog.New(slog.DiscardHandler)})
	q.add(t, "1", "caller")
	(&runner{q: q, kernel: k}).begin(t.Context())
	x := q.journal.ByRequest("1").Snapshot()
	wantStatus(t, x, contract.StatusCancelled)
	if !strings.Contains(x.Reason, "did not run") {
		t.Errorf("the reason is %q", x.Reason)
	}
}
