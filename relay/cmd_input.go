package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

func inputCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := runsCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "input [ID]",
		Short: "Answer a run that waits in input() or getpass()",
		Long: "Show the prompt of a run that waits for input, and send it one line, typed or from a pipe. A password is not shown while you type it, and no agent sees it.\n" +
			"ID may be the first characters of an id that `colab-relay ps` lists. Without ID, the command applies to the current run, whoever started it.",
		Example: "  colab-relay input\n  echo yes | colab-relay input 3f2a",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withRun(cmd.Context(), args, func(ctx context.Context, s runSession, e contract.Execution) error {
				e, err := remoterun.Answer(ctx, s.VM, e, s.console)
				switch {
				case err != nil:
					return err
				case c.json:
					return printJSON(std.Out, s.state(e))
				}
				_, err = fmt.Fprintf(std.Err, "colab-relay: answered; to follow the run: colab-relay logs -f %s\n", plain.Line(e.ExecutionID))
				return err
			})
		},
	}
	addRuntimeFlag(cmd, &c.runtime)
	addJSONFlag(cmd, &c.json)
	return cmd
}
