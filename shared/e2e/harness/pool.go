package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/shared/contract"
)

// Pool lends executors to tests, so that not every test has to start one. A test that needs
// an executor with special settings starts its own.
type Pool struct {
	Binary, Secret string

	mu   sync.Mutex
	idle map[string][]*Executor // by interpreter
	all  []*Executor
	dirs []string
}

// Borrow returns an executor that no other test uses until this test ends. Its working
// directory is empty except for the state folder and TempFolder, which is its TMPDIR. What
// earlier tests left in its kernel is still there. The executor of a failed test is killed.
func (p *Pool) Borrow(t testing.TB, python string) *Executor {
	t.Helper()
	e, err := p.take(python)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() || p.giveBack(e) != nil {
			e.Kill()
		}
	})
	return e
}

// TempFolder is the TMPDIR of a borrowed executor, in its working directory.
const TempFolder = "temp"

func (p *Pool) take(python string) (*Executor, error) {
	if e := p.waiting(python); e != nil {
		return e, nil
	}
	dir, err := os.MkdirTemp("", "pool-")
	if err != nil {
		return nil, err
	}
	e, err := p.start(python, dir)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dirs = append(p.dirs, dir)
	if err == nil {
		p.all = append(p.all, e)
	}
	return e, err
}

// waiting returns an executor that no test uses, or nil.
func (p *Pool) waiting(python string) *Executor {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle[python])
	if n == 0 {
		return nil
	}
	e := p.idle[python][n-1]
	p.idle[python] = p.idle[python][:n-1]
	return e
}

func (p *Pool) start(python, dir string) (*Executor, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	temp := filepath.Join(dir, TempFolder)
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	return StartExecutor(ctx, ExecutorConfig{Binary: p.Binary, Python: python, Dir: dir, Secret: p.Secret, Env: []string{"TMPDIR=" + temp}})
}

// giveBack empties the folders and makes the executor available again, unless it was killed.
func (p *Pool) giveBack(e *Executor) error {
	select {
	case <-e.exited:
		return nil
	default:
	}
	if err := empty(e.Config.Dir, func(name string) bool { return name == TempFolder || strings.HasPrefix(name, ".colab-relay") }); err != nil {
		return err
	}
	if err := empty(filepath.Join(e.Config.Dir, TempFolder), isSocketFolder); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = map[string][]*Executor{}
	}
	p.idle[e.Config.Python] = append(p.idle[e.Config.Python], e)
	return nil
}

// isSocketFolder reports whether a folder in the executor's TMPDIR has the kernel's sockets.
func isSocketFolder(name string) bool {
	return strings.HasPrefix(name, "colab-relay-") && !strings.HasPrefix(name, contract.StateFolderPrefix)
}

// empty deletes everything in dir except what keep names.
func empty(dir string, keep func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if !keep(entry.Name()) && err == nil {
			err = os.RemoveAll(filepath.Join(dir, entry.Name()))
		}
	}
	return err
}

// Close kills the executors and deletes their folders.
func (p *Pool) Close() {
	for _, e := range p.all {
		e.Kill()
	}
	for _, dir := range p.dirs {
		os.RemoveAll(dir)
	}
}

// Main is the TestMain of a package whose tests borrow executors from p. It builds the
// executor, runs the tests, and fails if a goroutine of theirs is left.
func (p *Pool) Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "pool-build-")
	if err == nil {
		p.Binary, err = BuildExecutor(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the executor:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(closing{m, p}, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// closing closes the pool after the tests, so that goleak does not find its goroutines.
type closing struct {
	m *testing.M
	p *Pool
}

func (c closing) Run() int {
	defer c.p.Close()
	return c.m.Run()
}
