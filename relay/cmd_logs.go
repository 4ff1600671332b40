package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/history"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/runlist"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

func logsCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := logsOptions{runsCommand: runsCommand{set: set, std: std}}
	cmd := &cobra.Command{
		Use:   "logs [ID]",
		Short: "Print a run's output",
		Long: "Print the output of a run so far, without changing anything. To answer its input() or to interrupt it, use `colab-relay attach`.\n" +
			"ID may be the first characters of an id that `colab-relay ps` lists. Without ID, it is the newest run.\n" +
			"The output comes from the VM. If the VM does not answer or no longer has the run, the output comes from this computer's history; so do parts that the VM has lost.",
		Example: "  colab-relay logs\n  colab-relay logs -f 3f2a\n  colab-relay logs --json 3f2a | jq -r 'select(.type==\"stream\").text'",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args)
		},
	}
	addRuntimeFlag(cmd, &c.runtime)
	cmd.Flags().BoolVar(&c.json, "json", false, "print one event a line, as JSON")
	cmd.Flags().BoolVarP(&c.follow, "follow", "f", false, "keep printing until the run ends; Ctrl-C leaves it running")
	set.AddFlags(cmd.Flags(), "LOCAL_SAVE_DIR")
	return cmd
}

type logsOptions struct {
	runsCommand
	follow bool
}

func (c *logsOptions) run(ctx context.Context, args []string) error {
	var missing error // why the VM does not have the run
	reading := false
	err := c.session(ctx, args, func(ctx context.Context, s runSession) error {
		var e contract.Execution
		if len(args) > 0 {
			e, missing = remoterun.FindOnVM(ctx, s.VM, args[0])
		} else {
			e, missing = remoterun.FindNewest(ctx, s.VM, runlist.IsInternal)
		}
		if missing != nil {
			return nil
		}
		reading = true
		return remoterun.Logs(ctx, s.VM, e.ExecutionID, remoterun.LogOptions{Follow: c.follow, JSON: c.json, Fill: s.history.filler(e.ExecutionID)}, s.console)
	})
	switch {
	case errors.Is(missing, remoterun.ErrAmbiguous), missing != nil && ctx.Err() != nil:
		return missing
	case missing != nil:
		return c.printKept(ctx, args, missing)
	case isAway(err) && !reading && ctx.Err() == nil:
		return c.printKept(ctx, args, err)
	}
	return err
}

// isAway reports whether the history may have what the VM does not answer. That no runtime
// is paired, or not this one, is such an error too.
func isAway(err error) bool {
	if _, unanswered := errors.AsType[*client.Error](err); unanswered {
		return true
	}
	if refused, ok := errors.AsType[*contract.Error](err); ok {
		return refused.Code == contract.CodeNotFound || refused.Code == contract.CodeNewInstance
	}
	return errors.Is(err, pairing.ErrNotPaired) || errors.Is(err, pairing.ErrNoAddress)
}

// printKept prints the run from the history. missing is why the VM does not answer for it.
func (c *logsOptions) printKept(ctx context.Context, args []string, missing error) error {
	cfg := config.Load(*c.set)
	if err := cfg.Err(); err != nil {
		return err
	}
	kept := openHistory(cfg, nil)
	defer kept.close(c.std.Err)
	run, err := kept.find(args, c.runtime)
	if err != nil {
		return missing
	}
	events, err := kept.Events(run)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.std.Err, "note: this is from the history on this computer: %s\n", plain.Line(missing.Error()))
	run.Execution.Events = events
	return remoterun.PrintKept(ctx, remoterun.Kept{Execution: run.Execution, Blobs: kept.Fetch(run)}, c.json, c.console(cfg))
}

// find returns the run of a runtime, of any if that is empty, whose id begins with the first
// of args, or else the newest.
func (h runHistory) find(args []string, runtime string) (history.Run, error) {
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
