package main

import (
	"context"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
)

func attachCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := runsCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "attach [ID]",
		Short: "Print a run's output from its beginning and take over",
		Long: "Print the output of a run from its beginning and go on as if `colab-relay run` had started it here: answer its input(), interrupt it with Ctrl-C, and end with its exit code.\n" +
			"ID may be the beginning of an id that `colab-relay ps` lists. Without it, the run that is under way is meant, whoever started it.",
		Example: "  colab-relay attach\n  colab-relay attach 3f2a",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.session(cmd.Context(), args, func(ctx context.Context, s runSession) error {
				e, err := s.find(ctx, args, remoterun.FindCurrent)
				if err != nil {
					return usageOfRun(err)
				}
				return remoterun.Attach(ctx, s.VM, e.ExecutionID, s.console)
			})
		},
	}
	addRuntimeFlag(cmd, &c.runtime)
	set.AddFlags(cmd.Flags(), "LOCAL_SAVE_DIR")
	return cmd
}
