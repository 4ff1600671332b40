package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
	"colabrelay/relay/transfer"
)

func putCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &transferCommand{set: set, std: std, upload: true}
	force := false
	cmd := &cobra.Command{
		Use:   "put LOCAL [REMOTE]",
		Short: "Upload a file or folder to the VM; run it again to resume",
		Long: "Upload a file or folder to the VM and check it by SHA-256. If the upload is stopped or the connection breaks, run the same command again to resume it.\n" +
			"Without REMOTE, the upload goes into /content, or into the executor's working directory if the VM has no /content. If REMOTE is a folder or ends in a slash, a file goes into it.\n" +
			"Files that usually contain keys or passwords are uploaded only after you confirm, or with --force.",
		Example: "  colab-relay put data.csv\n  colab-relay put photos /content/photos\n  colab-relay put train.py --overwrite",
		Args:    arguments(1, 2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveDefault // LOCAL
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usagef("LOCAL is empty: name a file or folder on this computer")
			}
			remote := append(args, "")[1]
			cfg := config.Load(*set)
			if err := cfg.Err(); err != nil {
				return err
			}
			guard := cfg.Guard
			if force {
				guard = nil
			}
			err := transfer.CheckUpload(cmd.Context(), args[0], guard)
			switch {
			case errors.Is(err, transfer.ErrGuarded) && terminal.Confirm(cmd.Context(), std, plain.Text(err.Error())+"\nUpload it anyway?"):
				guard = nil
			case err != nil:
				return err
			}
			return c.run(cmd.Context(), args[0], func(ctx context.Context, vm tools.Runtime, o transfer.Options) (transfer.Result, error) {
				o.Guard = guard
				return transfer.Upload(ctx, vm.Client, args[0], remote, o)
			})
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "upload files that usually contain keys or passwords without asking")
	return cmd
}
