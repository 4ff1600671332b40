package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/history"
	"colabrelay/relay/pairing"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/runlist"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/terminal/inline"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabcli"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// RunsCommand is what the commands about runs have in common.
type RunsCommand struct {
	Set     *config.Settings
	Std     terminal.Streams
	Runtime string
	JSON    bool
}

// RunSession is a VM that answers, what a person sees of it, and the history of runs.
type RunSession struct {
	remoterun.VM
	Console remoterun.Console
	History *history.Store
}

// OfRun chooses the named runtime, or else that of the run that args name, if the history knows it.
func OfRun(runtime string, args []string) func(*history.Store) string {
	return func(kept *history.Store) string {
		if runtime == "" && len(args) > 0 {
			if run, err := runlist.Kept(kept, args[0], ""); err == nil {
				return run.Runtime
			}
		}
		return runtime
	}
}

// Session calls f with the VM: that of the run that args name, if the history knows it and
// no flag names another one. If the VM does not answer at the beginning, it returns that error
// at once.
func (c *RunsCommand) Session(ctx context.Context, args []string, f func(ctx context.Context, s RunSession) error) error {
	if len(args) > 0 && args[0] == "" {
		return Usagef("ID is empty")
	}
	return withVM(ctx, c.Set, OfRun(c.Runtime, args), c.Std, (&terminal.Outage{Out: c.Std.Err}).Attempt, func(vm liveVM) error {
		// Writing to a broken pipe must be an error: the signal would end this program and
		// leave the code running.
		signal.Ignore(syscall.SIGPIPE)
		return f(ctx, RunSession{
			VM:      remoterun.VM{Runtime: vm.Name, Client: vm.Client, LastSeen: vm.pool.LastSeen(runtimes.People)},
			Console: c.Console(vm.cfg), History: vm.history,
		})
	})
}

// Console returns what the person sees of runs.
func (c *RunsCommand) Console(cfg config.Config) remoterun.Console {
	return remoterun.Console{Streams: c.Std, PictureDir: cfg.SaveDir, Pictures: inline.Detect(c.Set.Getenv), Colours: terminal.ColoursFor(c.Std.Err, c.Set.Getenv)}
}

// whereIs returns in place of an error about a run that the VM of a runtime does not have what the
// history knows of it.
func whereIs(h *history.Store, runtime string, unknown error) error {
	missing, ok := errors.AsType[*runlist.NoSuchRunError](unknown)
	if !ok {
		return unknown
	}
	kept, err := runlist.Kept(h, missing.ID, "")
	switch {
	case err != nil:
		return unknown
	case kept.Runtime != runtime:
		return fmt.Errorf("the run %s is not on runtime %q: it was submitted to %q", kept.ExecutionID, runtime, kept.Runtime)
	}
	return fmt.Errorf("the VM no longer has the run %s; `colab-relay logs %[1]s` prints what this computer kept of it", kept.ExecutionID)
}

// OpenHistory returns the history that the settings name, nil if they switch it off. A caller must
// finish it after its last request to a VM.
func OpenHistory(cfg config.Config, log *slog.Logger) *history.Store {
	if cfg.HistoryDir == "" {
		return nil
	}
	return history.New(history.Config{Dir: cfg.HistoryDir, MaxBytes: cfg.HistoryBytes, Log: log})
}

// FinishHistory ends the recording, and tells the person if something is not kept.
func FinishHistory(kept *history.Store, w io.Writer) {
	if err := kept.Close(); err != nil {
		fmt.Fprintf(w, "colab-relay: a run, or part of one, could not be saved in the history on this computer: %v\n", err)
	}
}

// liveVM is a VM that answers, and what a command needs beside it.
type liveVM struct {
	runtimes.Runtime
	cfg     config.Config
	pool    *runtimes.Pool
	history *history.Store
}

// Named chooses the runtime of that name, the default one if name is empty.
func Named(name string) func(*history.Store) string {
	return func(*history.Store) string { return name }
}

// withVM calls use with the runtime that choose names, after its executor has answered. If it
// does not answer at the beginning, withVM returns that error at once. attempt gets the outcome of
// each attempt to reach the VM.
func withVM(ctx context.Context, set *config.Settings, choose func(*history.Store) string, std terminal.Streams, attempt func(error), use func(liveVM) error) error {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return err
	}
	kept := OpenHistory(cfg, nil)
	defer FinishHistory(kept, std.Err)
	vms := NewVMs(*set, cfg, "", nil)
	defer vms.Close()
	alive := vms.Keeper()
	pool := runtimes.New(runtimes.Config{Getenv: set.Get, Pairings: cfg.Pairings, OnAttempt: attempt, Record: alive.Record(kept.Record), Transport: vms.Transport})
	defer pool.Close()
	alive.Start(ctx, WorkOf(pool), false)
	defer alive.Close()
	target, err := pool.Resolve(choose(kept))
	if err != nil {
		return err
	}
	if err := Reach(ctx, target.Client); err != nil {
		return err
	}
	return whereIs(kept, target.Name, use(liveVM{target, cfg, pool, kept}))
}

// Reach sends one request, so that a command with a wrong address ends instead of
// retrying for ever.
func Reach(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, client.ReachLimit)
	defer cancel()
	_, err := c.Kernel(ctx)
	return err
}

// Briefly returns the ctx of a command that only asks: it ends if the connection breaks each time,
// as it does if the VM does not answer at the beginning.
func Briefly(ctx context.Context) context.Context {
	return client.WithPatience(ctx, client.ReachLimit)
}

// ReadCode reads Python or Markdown of at most so many bytes. what names it in errors.
func ReadCode(in io.Reader, what string, most int64) (string, error) {
	b, err := bounded.ReadAll(in, most)
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // some editors on Windows write it
	switch {
	case errors.Is(err, bounded.ErrTooLong):
		return "", fmt.Errorf("%s is %v: put data into a file", what, err)
	case err != nil:
		return "", fmt.Errorf("read %s: %v", what, err)
	case len(bytes.TrimSpace(b)) == 0:
		return "", fmt.Errorf("%s is empty: give it with -c CODE, as a file or on stdin", what)
	case !utf8.Valid(b):
		return "", fmt.Errorf("%s is not UTF-8 text: save it as UTF-8", what)
	}
	return string(b), nil
}

// Names of the backends.
const (
	BackendCLI = "cli"
	BackendAPI = "api"
)

// backends returns what opens a backend, whose files are below dir. It opens each once: they keep
// tokens and connections.
func backends(dir string, log *slog.Logger) func(name string) (vm.Backend, error) {
	open := map[string]func() vm.Backend{
		BackendCLI: sync.OnceValue(func() vm.Backend { return NewCLIBackend(dir, log) }),
		BackendAPI: sync.OnceValue(func() vm.Backend { return colabapi.New(colabapi.Config{Dir: dir, Log: log}) }),
	}
	return func(name string) (vm.Backend, error) {
		if open[name] == nil {
			return nil, fmt.Errorf("%w: backend %q: use %s or %s", vm.ErrBadRequest, name, BackendCLI, BackendAPI)
		}
		return open[name](), nil
	}
}

// NewCLIBackend returns the backend of Google's command line, whose files are below dir.
func NewCLIBackend(dir string, log *slog.Logger) *colabcli.Backend {
	return colabcli.New(colabcli.Config{Dir: filepath.Join(dir, "cli"), Log: log})
}

// NewVMs returns what starts VMs. file is the executor for them; empty for that of the release.
// A caller must Close it.
func NewVMs(set config.Settings, cfg config.Config, file string, log *slog.Logger) *vm.Manager {
	token, domain, _ := config.Ngrok(set) // cfg.Problems has its error
	return vm.New(vm.Config{
		Dir: cfg.VMDir, Pairings: cfg.Pairings, Open: backends(cfg.VMDir, log),
		NgrokToken: token, NgrokDomain: domain, Log: log,
		Program: ExecutorProgram(set.Get, file),
	})
}

// ExecutorProgram returns what finds the executor for a processor: the one in file, or that of
// the release if file is empty.
func ExecutorProgram(getenv func(string) string, file string) func(context.Context, string) (vm.Program, error) {
	return func(ctx context.Context, arch string) (vm.Program, error) {
		if file != "" {
			return vm.FileProgram(file, arch)
		}
		release, err := executorRelease(ctx, getenv)
		if err != nil {
			return vm.Program{}, err
		}
		cache, err := os.UserCacheDir()
		if err != nil {
			return vm.Program{}, err
		}
		return vm.ReleaseProgram(release, arch, filepath.Join(cache, "colab-relay", "executors"))
	}
}

// VMTransport returns what makes the connections to runtimes that are reached through the
// proxy of their VM. It opens nothing before the first one.
func VMTransport(set config.Settings, cfg config.Config) func(pairing.Runtime) http.RoundTripper {
	manager := sync.OnceValue(func() *vm.Manager { return NewVMs(set, cfg, "", nil) })
	return func(r pairing.Runtime) http.RoundTripper {
		if r.Provider == "" {
			return nil // not a nil *transport
		}
		return manager().Transport(r)
	}
}

// workTime bounds the question what an executor does.
const workTime = 30 * time.Second

// WorkOf returns what asks the executor of a runtime for its executions, for a vm.Keeper.
func WorkOf(pool *runtimes.Pool) func(ctx context.Context, runtime string) (vm.Work, error) {
	return func(ctx context.Context, runtime string) (vm.Work, error) {
		ctx, cancel := context.WithTimeout(ctx, workTime)
		defer cancel()
		target, err := pool.Resolve(runtime)
		if err != nil {
			return vm.Idle, err
		}
		got, err := target.Client.List(ctx, contract.MaxListExecutions)
		work := vm.Idle
		for _, e := range got.Executions {
			switch {
			case e.Status == contract.StatusRunning:
				return vm.Working, nil
			case !e.Status.Finished():
				work = vm.Waiting
			}
		}
		return work, err
	}
}
