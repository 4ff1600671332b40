package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/history"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/runlist"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/terminal/inline"
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
	History RunHistory
}

// OfRun chooses the named runtime, or else that of the run that args name, if the history knows it.
func OfRun(runtime string, args []string) func(RunHistory) string {
	return func(kept RunHistory) string {
		if runtime == "" && len(args) > 0 {
			if run, err := kept.Find(args, ""); err == nil {
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
func (h RunHistory) whereIs(runtime string, unknown error) error {
	missing, ok := errors.AsType[*runlist.NoSuchRunError](unknown)
	if !ok {
		return unknown
	}
	kept, err := h.Find([]string{missing.ID}, "")
	switch {
	case err != nil:
		return unknown
	case kept.Runtime != runtime:
		return fmt.Errorf("the run %s is not on runtime %q: it was submitted to %q", kept.ExecutionID, runtime, kept.Runtime)
	}
	return fmt.Errorf("the VM no longer has the run %s; `colab-relay logs %[1]s` prints what this computer kept of it", kept.ExecutionID)
}

// RunHistory is the history of runs, or none if the settings switch it off.
type RunHistory struct{ *history.Store }

// OpenHistory returns the history that the settings name. A caller must close it after its
// last request to a VM.
func OpenHistory(cfg config.Config, log *slog.Logger) RunHistory {
	if cfg.HistoryDir == "" {
		return RunHistory{}
	}
	return RunHistory{history.New(history.Config{Dir: cfg.HistoryDir, MaxBytes: cfg.HistoryBytes, Log: log})}
}

// Recorder is runtimes.Config.Record.
func (h RunHistory) Recorder() func(runtime string) client.Recorder {
	if h.Store == nil {
		return nil
	}
	return h.Record
}

// Fill is remoterun.LogOptions.Fill for a run.
func (h RunHistory) Fill(id string) func(events []contract.Event) []contract.Event {
	if h.Store == nil {
		return nil
	}
	return h.Filler(id)
}

// Finish ends the recording, and tells the person if something is not kept.
func (h RunHistory) Finish(w io.Writer) {
	if h.Store == nil {
		return
	}
	if err := h.Close(); err != nil {
		fmt.Fprintf(w, "colab-relay: a run, or part of one, could not be saved in the history on this computer: %v\n", err)
	}
}

// Runs returns all runs of the history, none if it is off.
func (h RunHistory) Runs() ([]history.Run, error) {
	if h.Store == nil {
		return nil, nil
	}
	return h.List()
}

// Find returns the run of a runtime, of any if that is empty, whose id begins with the first
// of args, or else the newest.
func (h RunHistory) Find(args []string, runtime string) (history.Run, error) {
	if h.Store == nil {
		return history.Run{}, history.ErrNotFound
	}
	runs, err := h.List()
	if err != nil {
		return history.Run{}, err
	}
	runs = runlist.OfRuntime(runs, runtime)
	executions := make([]contract.Execution, 0, len(runs))
	for _, run := range runs {
		if len(args) == 0 && !run.Internal {
			return run, nil
		}
		executions = append(executions, run.Execution)
	}
	if len(args) == 0 {
		return history.Run{}, history.ErrNotFound
	}
	e, err := runlist.Find(executions, args[0])
	if err != nil {
		return history.Run{}, err
	}
	return h.Get(e.ExecutionID)
}
