package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"colabrelay/relay/plain"
	"colabrelay/relay/tools"
	"colabrelay/relay/transfer"
)

func putCommand(set *settings, std streams) *cobra.Command {
	m := &move{set: set, std: std}
	force := false
	cmd := &cobra.Command{
		Use:   "put LOCAL [REMOTE]",
		Short: "Upload a file or folder to the VM; the same command resumes",
		Long: "Upload a file or folder to the VM, checked by SHA-256. Stopped or cut, the same command goes on where it was.\n" +
			"Files that usually hold keys or passwords need your consent, or --force.\n" +
			"Without REMOTE it goes into /content, which means the executor's workdir where it does not exist; a file goes into REMOTE where that is a folder or ends in a slash.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote := append(args, "")[1]
			guard := load(*set).guard
			if force {
				guard = nil
			}
			err := transfer.CheckUpload(cmd.Context(), args[0], guard)
			switch {
			case errors.Is(err, transfer.ErrGuarded) && agreed(std, err):
				guard = nil
			case err != nil:
				return err
			}
			return m.run(cmd.Context(), args[0], func(ctx context.Context, vm tools.Runtime, o transfer.Options) (transfer.Result, error) {
				o.Guard = guard
				return transfer.Upload(ctx, vm.Client, args[0], remote, o)
			})
		},
	}
	m.flags(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", false, "also upload files that usually hold keys or passwords")
	return cmd
}

// agreed asks the person, where there is a terminal to ask on, about files that usually
// hold keys.
func agreed(std streams, refused error) bool {
	f, ok := std.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false
	}
	fmt.Fprintf(std.err, "%s\nUpload it all the same? [y/N] ", plain.Text(refused.Error()))
	answer, _ := bufio.NewReader(io.LimitReader(f, 100)).ReadString('\n') // no answer is no
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
