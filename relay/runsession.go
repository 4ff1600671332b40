package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"colabrelay/relay/config"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/terminal/inline"
	"colabrelay/shared/contract"
)

// runsCommand is what the commands about runs have in common.
type runsCommand struct {
	set     *config.Settings
	std     terminal.Streams
	runtime string
	json    bool
}

// runSession is a VM that answers, what a person sees of it, and the history of runs.
type runSession struct {
	remoterun.VM
	console remoterun.Console
	history runHistory
}

// session calls f with the VM: that of the run that args name, if the history knows it and
// no flag names another one. If the VM does not answer at the beginning, it returns that error
// at once.
func (c *runsCommand) session(ctx context.Context, args []string, f func(ctx context.Context, s runSession) error) error {
	choose := func(kept runHistory) string {
		if c.runtime == "" && len(args) > 0 {
			if run, err := kept.find(args, ""); err == nil {
				return run.Runtime
			}
		}
		return c.runtime
	}
	return withVM(ctx, c.set, choose, c.std, func(vm openVM) error {
		// Writing to a broken pipe must be an error: the signal would end this program and
		// leave the code running.
		signal.Ignore(syscall.SIGPIPE)
		return f(ctx, runSession{
			VM:      remoterun.VM{Runtime: vm.Name, Client: vm.Client, LastSeen: vm.pool.LastSeen(runtimes.People)},
			console: c.console(vm.cfg), history: vm.history,
		})
	})
}

func (c *runsCommand) console(cfg config.Config) remoterun.Console {
	return remoterun.Console{Streams: c.std, PictureDir: cfg.SaveDir, Pictures: inline.Detect(c.set.Getenv)}
}

// whereIs returns in place of unknown what the history knows of a run that the VM does not have.
func (s runSession) whereIs(args []string, unknown error) error {
	kept, err := s.history.find(args, "")
	switch {
	case err != nil:
		return unknown
	case kept.Runtime != s.Runtime:
		return fmt.Errorf("the run %s is not on runtime %q: it was submitted to %q", kept.ExecutionID, s.Runtime, kept.Runtime)
	}
	return fmt.Errorf("the VM no longer has the run %s; `colab-relay logs %[1]s` prints what this computer kept of it", kept.ExecutionID)
}

// withRun calls f with the run that args name by its id or the beginning of it, or else with
// the one that is running.
func (c *runsCommand) withRun(ctx context.Context, args []string, f func(ctx context.Context, s runSession, e contract.Execution) error) error {
	return c.session(ctx, args, func(ctx context.Context, s runSession) error {
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

// runState is what a command answers about a run, with the names of the tools' answers.
type runState struct {
	ExecutionID string          `json:"execution_id"`
	Status      contract.Status `json:"status"`
	Reason      string          `json:"reason,omitempty"`
	Runtime     string          `json:"runtime"`
}

func (s runSession) state(e contract.Execution) runState {
	return runState{e.ExecutionID, e.Status, e.Reason, s.Runtime}
}
