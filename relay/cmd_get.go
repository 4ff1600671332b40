package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
	"colabrelay/relay/transfer"
)

func getCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &transferCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "get REMOTE [LOCAL]",
		Short: "Download a file or folder from the VM; run it again to resume",
		Long: "Download a file or folder from the VM and check it by SHA-256. If the download is stopped or the connection breaks, run the same command again to resume it.\n" +
			"Without LOCAL, the download goes into the current folder under the last part of REMOTE (for /content: under the runtime's name). If LOCAL is a folder or ends in a slash, the download goes into it.\n" +
			"A folder becomes LOCAL itself if nothing is there, or if an earlier run of the same download created it. It is not merged into any other folder unless you give --overwrite.",
		Example: "  colab-relay get /content/model.pt\n  colab-relay get results plots/           # a folder, into the folder plots\n  colab-relay get log.txt --json",
		Args:    arguments(1, 2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault // LOCAL
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usagef("REMOTE is empty: name a file or folder on the VM, such as /content/model.bin")
			}
			to := localTarget(append(args, "")[1])
			return c.run(cmd.Context(), args[0], func(ctx context.Context, vm tools.Runtime, o transfer.Options) (transfer.Result, error) {
				to.Runtime = vm.Name
				return transfer.Download(ctx, vm.Client, args[0], to, o)
			})
		},
	}
	c.addFlags(cmd)
	return cmd
}

// localTarget returns the place that LOCAL names. A person may write anywhere.
func localTarget(local string) transfer.Local {
	base := filepath.Base(local)
	switch {
	case local == "", base == ".", base == "..", base == string(filepath.Separator),
		strings.HasSuffix(local, "/"), os.IsPathSeparator(local[len(local)-1]):
		return transfer.Local{Dir: filepath.Clean(local)}
	}
	return transfer.Local{Dir: filepath.Dir(local), Name: base}
}
