package main

import (
	"context"

	"github.com/spf13/cobra"

	"colabrelay/relay/tools"
	"colabrelay/relay/transfer"
)

func putCommand(set *settings, std streams) *cobra.Command {
	m := &move{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "put LOCAL [REMOTE]",
		Short: "Upload a file or folder to the VM; the same command resumes",
		Long: "Upload a file or folder to the VM, checked by SHA-256. Stopped or cut, the same command goes on where it was.\n" +
			"Without REMOTE it goes into /content, which means the executor's workdir where it does not exist; a file goes into REMOTE where that is a folder or ends in a slash.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote := append(args, "")[1]
			return m.run(cmd.Context(), args[0], func(ctx context.Context, vm tools.Runtime, o transfer.Options) (transfer.Result, error) {
				return transfer.Upload(ctx, vm.Client, args[0], remote, o)
			})
		},
	}
	m.flags(cmd.Flags())
	return cmd
}
