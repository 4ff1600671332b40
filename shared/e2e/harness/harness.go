// Package harness starts the real programs for the end-to-end tests and the
// demo: an executor with its kernel, and an MCP host with a relay as its child.
//
// It must not be linked into either program. It can kill everything that it starts, as
// the end of a VM or a laptop would. Start reading at StartExecutor and StartHost.
package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"colabrelay/shared/freeport"
	"colabrelay/shared/stacks"
)

// Binaries are the paths of the two programs.
type Binaries struct{ Executor, Relay string }

// Build returns both programs. It takes those that EXECUTOR_BIN and RELAY_BIN name, as
// make test sets them, and compiles the others into dir.
func Build(ctx context.Context, dir string) (Binaries, error) {
	executor, err := BuildExecutor(ctx, dir)
	if err != nil {
		return Binaries{}, err
	}
	relay, err := program(ctx, "RELAY_BIN", "./relay", dir)
	return Binaries{Executor: executor, Relay: relay}, err
}

// BuildExecutor is Build for the executor alone.
func BuildExecutor(ctx context.Context, dir string) (string, error) {
	return program(ctx, "EXECUTOR_BIN", "./executor", dir)
}

// program returns the path that the environment variable holds, or compiles pkg into dir.
func program(ctx context.Context, variable, pkg, dir string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		_, err := os.Stat(path) // go test caches results until a file that it saw changes
		return path, err
	}
	path := filepath.Join(dir, filepath.Base(pkg))
	if onlyFuzzes(os.Args) {
		return path, nil
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=e2e", "-o", path, pkg)
	cmd.Dir = stacks.Root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, text)
	}
	return path, nil
}

// onlyFuzzes reports whether a test program with these arguments runs fuzz targets and no tests,
// as go test -run '^$' -fuzz starts it. They need no programs, and building one in the
// TestMain of each worker took most of their time.
func onlyFuzzes(args []string) bool {
	fuzzes := slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-test.fuzz=") && arg != "-test.fuzz=" })
	return slices.Contains(args, "-test.fuzzworker") || fuzzes && slices.Contains(args, "-test.run=^$")
}

// ExecutorConfig says how to start an executor. Dir is its working directory. The
// program's defaults apply to empty fields.
type ExecutorConfig struct {
	Binary string
	Python string
	Dir    string
	Secret string
	Listen string   // default: a free port of loopback
	Env    []string // added to a minimal environment
	Args   []string // added to the flags
}

// Executor is a running executor.
type Executor struct {
	Ready  Ready
	Output *Output // what it printed
	Config ExecutorConfig
	Took   time.Duration // from start to the ready file

	cmd    *exec.Cmd
	exited chan struct{}
	err    error
}

// Ready is the executor's ready file.
type Ready struct {
	URL        string `json:"url"`
	LocalURL   string `json:"local_url"`
	KeyID      string `json:"key_id"`
	InstanceID string `json:"instance_id"`
	PID        int    `json:"pid"`
	Pairing    string `json:"pairing"`
}

// StartExecutor starts an executor and returns when it has written its ready file.
func StartExecutor(ctx context.Context, c ExecutorConfig) (*Executor, error) {
	if c.Listen == "" {
		address, err := freeport.Address()
		if err != nil {
			return nil, err
		}
		c.Listen = address
	}
	readyDir, err := os.MkdirTemp("", "ready-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(readyDir)
	readyFile := filepath.Join(readyDir, "ready.json")
	args := append([]string{"--listen", c.Listen, "--workdir", c.Dir, "--python", c.Python, "--ready-file", readyFile}, c.Args...)
	e := &Executor{Output: &Output{}, Config: c, exited: make(chan struct{}), cmd: exec.Command(c.Binary, args...)}
	e.cmd.Dir = c.Dir
	e.cmd.Env = append(cleanEnviron(), c.Env...)
	if c.Secret != "" {
		e.cmd.Env = append(e.cmd.Env, "EXECUTOR_SECRET="+c.Secret)
	}
	e.cmd.Stdout, e.cmd.Stderr = e.Output, e.Output
	began := time.Now()
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		e.err = e.cmd.Wait()
		close(e.exited)
	}()
	if err := e.awaitReady(ctx, readyFile); err != nil {
		e.Kill()
		return nil, err
	}
	e.Took = time.Since(began)
	return e, nil
}

// readyLimit bounds the start of an executor and its kernel, on a busy computer.
const readyLimit = 5 * time.Minute

func (e *Executor) awaitReady(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	return Poll(ctx, func() (bool, error) {
		data, err := os.ReadFile(path)
		if err == nil {
			return true, json.Unmarshal(data, &e.Ready)
		}
		select {
		case <-e.exited:
			return false, fmt.Errorf("the executor ended: %v\n%s", e.err, e.Output)
		default:
			return false, nil
		}
	})
}

// cleanEnviron returns the variables that any program needs, without those that configure
// ours.
func cleanEnviron() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// PID returns the executor's process id.
func (e *Executor) PID() int { return e.cmd.Process.Pid }

// Kill ends the executor as a crash would and returns when it has exited.
func (e *Executor) Kill() {
	_ = e.cmd.Process.Kill()
	<-e.exited
}

// Stop sends SIGTERM, waits until the executor has exited, and returns its error. It kills
// the executor when ctx ends.
func (e *Executor) Stop(ctx context.Context) error {
	if err := e.cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	select {
	case <-e.exited:
		return e.err
	case <-ctx.Done():
		e.Kill()
		return fmt.Errorf("the executor did not end when asked:\n%s", e.Output)
	}
}

// Exited returns a channel that is closed when the executor has exited.
func (e *Executor) Exited() <-chan struct{} { return e.exited }

// Output collects what a program prints. It can be read while the program runs.
type Output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var _ io.Writer = (*Output)(nil)

// Poll calls f every few milliseconds until it is true, fails, or ctx ends.
func Poll(ctx context.Context, f func() (bool, error)) error {
	every := time.NewTicker(5 * time.Millisecond)
	defer every.Stop()
	for {
		if ok, err := f(); ok || err != nil {
			return err
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return fmt.Errorf("the awaited condition did not become true: %w", ctx.Err())
		}
	}
}

// Process is what a process has at one moment.
type Process struct {
	Memory      Memory
	Descriptors int      // open files, sockets and pipes
	Sockets     int      // of the descriptors
	Files       []string // paths of the others that have one
	Threads     int
	Children    []int // process ids
}

// ProcessOf reads what a process has from /proc. It fails if the process has ended.
func ProcessOf(pid int) (p Process, err error) {
	if p.Memory, err = MemoryOf(pid); err != nil {
		return p, err
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	descriptors, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return p, fmt.Errorf("listing the descriptors of process %d: %w", pid, err)
	}
	p.Descriptors = len(descriptors)
	for _, d := range descriptors {
		// A descriptor that was closed meanwhile has no target.
		switch target, _ := os.Readlink(filepath.Join(dir, "fd", d.Name())); {
		case strings.HasPrefix(target, "socket:"):
			p.Sockets++
		case strings.HasPrefix(target, "/"):
			p.Files = append(p.Files, target)
		}
	}
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return p, fmt.Errorf("listing the threads of process %d: %w", pid, err)
	}
	p.Threads = len(threads)
	for _, t := range threads { // a thread that ended meanwhile has no children
		list, _ := os.ReadFile(filepath.Join(dir, "task", t.Name(), "children"))
		for child := range bytes.FieldsSeq(list) {
			id, err := strconv.Atoi(string(child))
			if err != nil {
				return p, fmt.Errorf("reading the children of process %d: %w", pid, err)
			}
			p.Children = append(p.Children, id)
		}
	}
	return p, nil
}

// Memory is a process's resident memory in MiB: now, and the most since its start.
type Memory struct{ Now, Peak float64 }

// MemoryOf reads the resident memory of a process from /proc.
func MemoryOf(pid int) (Memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for field, to := range map[string]*float64{"VmRSS:": &m.Now, "VmHWM:": &m.Peak} {
		_, rest, _ := strings.Cut(string(status), field)
		var kib float64
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			return Memory{}, fmt.Errorf("reading %s of process %d: %w", field, pid, err)
		}
		*to = kib / 1024
	}
	return m, nil
}

// failure is an error that ends a part of a program.
type failure struct{ error }

// Check ends the part of a program that Try runs if there is an error.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Must is Check for a call with a result.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// FailIf is Check for what should not be.
func FailIf(wrong bool, format string, args ...any) {
	if wrong {
		Check(fmt.Errorf(format, args...))
	}
}

// Try runs a part of a program, in this goroutine, and returns the error that ended it.
func Try(part func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.error
		default:
			panic(ended)
		}
	}()
	part()
	return nil
}
