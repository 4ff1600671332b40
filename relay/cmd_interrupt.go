package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

func interruptCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := runsCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "interrupt [ID]",
		Short: "Stop a run; variables are kept",
		Long: "Stop a run on the VM, as the stop button of a notebook does: the code gets a KeyboardInterrupt, and the kernel keeps its variables. A queued run is cancelled. The command waits up to 10 s for the run to end; if it does not, the exit code is 75.\n" +
			"ID may be the first characters of an id that `colab-relay ps` lists. Without ID, the command applies to the current run, whoever started it.",
		Example: "  colab-relay interrupt\n  colab-relay interrupt 3f2a --json",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withRun(cmd.Context(), args, func(ctx context.Context, s runSession, e contract.Execution) error {
				e, ended, err := remoterun.Interrupt(ctx, s.VM, e)
				if err != nil && !errors.Is(err, remoterun.ErrStillRunning) {
					return err
				}
				if ended {
					fmt.Fprintln(std.Err, "note: nothing was interrupted, because the run had already ended")
				}
				if c.json {
					return errors.Join(err, printJSON(std.Out, s.state(e)))
				}
				_, printed := fmt.Fprintf(std.Out, "%s  %s\n", plain.Line(e.ExecutionID), plain.Line(string(e.Status)))
				return errors.Join(err, printed)
			})
		},
	}
	addRuntimeFlag(cmd, &c.runtime)
	addJSONFlag(cmd, &c.json)
	return cmd
}
