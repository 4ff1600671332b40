package main

import (
	"context"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

func attachCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := runsCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "attach [ID]",
		Short: "Follow a run as if you had started it here",
		Long: "Print the output of a run from its beginning, and follow it as `colab-relay run` does: answer its input(), interrupt it with Ctrl-C, and end with its exit code. The run may have ended already.\n" +
			"ID may be the first characters of an id that `colab-relay ps` lists. Without ID, the command applies to the current run, whoever started it.",
		Example: "  colab-relay attach\n  colab-relay attach 3f2a",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withRun(cmd.Context(), args, func(ctx context.Context, s runSession, e contract.Execution) error {
				return remoterun.Attach(ctx, s.VM, e.ExecutionID, s.console)
			})
		},
	}
	addRuntimeFlag(cmd, &c.runtime)
	set.AddFlags(cmd.Flags(), "LOCAL_SAVE_DIR")
	return cmd
}
