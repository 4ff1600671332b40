package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/tools"
	"colabrelay/relay/transfer"
)

func getCommand(set *settings, std streams) *cobra.Command {
	m := &move{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "get REMOTE [LOCAL]",
		Short: "Download a file or folder from the VM; the same command resumes",
		Long: "Download a file or folder from the VM, checked by SHA-256. Stopped or cut, the same command goes on where it was.\n" +
			"Without LOCAL it goes into the current folder, under the name in REMOTE (for /content: the runtime's name). A LOCAL that is a folder, or ends in a slash, takes it inside.\n" +
			"A folder goes to LOCAL itself where nothing is there or an earlier call of the same download made it. It is never merged into another folder, unless --overwrite is given.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return errors.New("REMOTE is empty: name a file or folder on the VM, such as /content/model.bin")
			}
			to := localTarget(append(args, "")[1])
			return m.run(cmd.Context(), args[0], func(ctx context.Context, vm tools.Runtime, o transfer.Options) (transfer.Result, error) {
				to.Runtime = vm.Name
				return transfer.Download(ctx, vm.Client, args[0], to, o)
			})
		},
	}
	m.flags(cmd.Flags())
	return cmd
}

// localTarget says where LOCAL means: a person may write anywhere.
func localTarget(local string) transfer.Local {
	base := filepath.Base(local)
	switch {
	case local == "", base == ".", base == "..", base == string(filepath.Separator),
		strings.HasSuffix(local, "/"), os.IsPathSeparator(local[len(local)-1]):
		return transfer.Local{Dir: filepath.Clean(local)}
	}
	return transfer.Local{Dir: filepath.Dir(local), Name: base}
}
