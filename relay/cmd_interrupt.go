package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
)

func interruptCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := runsCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "interrupt [ID]",
		Short: "Stop a run; variables stay",
		Long: "Stop a run on the VM, as the stop button of a notebook does: the code gets a KeyboardInterrupt, and the kernel keeps its variables. A run that has not started is cancelled. The command waits up to 10 s for the end.\n" +
			"ID may be the beginning of an id that `colab-relay ps` lists. Without it, the run that is under way is meant, whoever started it.",
		Example: "  colab-relay interrupt\n  colab-relay interrupt 3f2a --json",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.session(cmd.Context(), args, func(ctx context.Context, s runSession) error {
				e, err := s.find(ctx, args, remoterun.FindCurrent)
				if err != nil {
					return usageOfRun(err)
				}
				e, err = s.Client.Interrupt(ctx, e.ExecutionID)
				switch {
				case err != nil:
					return err
				case c.json:
					return printJSON(std.Out, s.state(e))
				case !e.Status.Finished():
					return fmt.Errorf("the run %s has not yielded yet; wait, or `colab-relay restart` ends it with its variables", e.ExecutionID)
				}
				_, err = fmt.Fprintf(std.Out, "%s  %s\n", plain.Line(e.ExecutionID), plain.Line(string(e.Status)))
				return err
			})
		},
	}
	addRuntimeFlag(cmd, &c.runtime)
	addJSONFlag(cmd, &c.json)
	return cmd
}
