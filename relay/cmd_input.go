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

func inputCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := runsCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "input [ID]",
		Short: "Answer a run that waits in input() or getpass()",
		Long: "Show what a run asks for and send it one line, typed or from a pipe. A password is not shown while you type it, and goes to no agent.\n" +
			"ID may be the beginning of an id that `colab-relay ps` lists. Without it, the run that is under way is meant, whoever started it.",
		Example: "  colab-relay input\n  echo yes | colab-relay input 3f2a",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.session(cmd.Context(), args, func(ctx context.Context, s runSession) error {
				e, err := s.find(ctx, args, remoterun.FindCurrent)
				if err != nil {
					return usageOfRun(err)
				}
				e, err = remoterun.Answer(ctx, s.VM, e, s.console)
				switch {
				case err != nil:
					return err
				case c.json:
					return printJSON(std.Out, s.state(e))
				}
				_, err = fmt.Fprintf(std.Err, "colab-relay: answered; the run goes on: colab-relay logs -f %s\n", plain.Line(e.ExecutionID))
				return err
			})
		},
	}
	addRuntimeFlag(cmd, &c.runtime)
	addJSONFlag(cmd, &c.json)
	return cmd
}
