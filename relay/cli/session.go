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

// Session calls f with the VM: that of the run that args name, if the history knows it and
// no flag names another one. If the VM does not answer at the beginning, it returns that error
// at once.
func (c *RunsCommand) Session(ctx context.Context, args []string, f func(ctx context.Context, s RunSession) error) error {
	choose := func(kept RunHistory) string {
		if c.Runtime == "" && len(args) > 0 {
			if run, err := kept.Find(args, ""); err == nil {
				return run.Runtime
			}
		}
		return c.Runtime
	}
	return WithVM(ctx, c.Set, choose, c.Std, func(vm LiveVM) error {
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

// whereIs returns in place of unknown what the history knows of a run that the VM does not have.
func (s RunSession) whereIs(args []string, unknown error) error {
	kept, err := s.History.Find(args, "")
	switch {
	case err != nil:
		return unknown
	case kept.Runtime != s.Runtime:
		return fmt.Errorf("the run %s is not on runtime %q: it was submitted to %q", kept.ExecutionID, s.Runtime, kept.Runtime)
	}
	return fmt.Errorf("the VM no longer has the run %s; `colab-relay logs %[1]s` prints what this computer kept of it", kept.ExecutionID)
}

// WithRun calls f with the run that args name by its id or the beginning of it, or else with
// the one that is running.
func (c *RunsCommand) WithRun(ctx context.Context, args []string, f func(ctx context.Context, s RunSession, e contract.Execution) error) error {
	return c.Session(ctx, args, func(ctx context.Context, s RunSession) error {
		if len(args) == 0 {
			e, err := remoterun.FindCurrent(ctx, s.VM)
			if err != nil {
				return err
			}
			return f(ctx, s, e)
		}
		e, err := remoterun.FindOnVM(ctx, s.VM, args[0])
		if errors.Is(err, remoterun.ErrNoSuchRun) {
			err = s.whereIs(args, err)
		}
		if err != nil {
			return err
		}
		return f(ctx, s, e)
	})
}

// RunState is what a command answers about a run, with the names of the tools' answers.
type RunState struct {
	ExecutionID string          `json:"execution_id"`
	Status      contract.Status `json:"status"`
	Reason      string          `json:"reason,omitempty"`
	Runtime     string          `json:"runtime"`
}

// State returns what a command answers about e.
func (s RunSession) State(e contract.Execution) RunState {
	return RunState{e.ExecutionID, e.Status, e.Reason, s.Runtime}
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
	e, err := remoterun.Find(executions, args[0])
	if err != nil {
		return history.Run{}, err
	}
	return h.Get(e.ExecutionID)
}
