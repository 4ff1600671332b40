package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/pairing"
	"colabrelay/relay/terminal"
)

func unpairCommand(std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:     "unpair NAME",
		Short:   "Remove a paired runtime",
		Long:    "Remove a paired runtime and its secret from this computer. Nothing changes on the VM.",
		Example: "  colab-relay unpair gpu-lab",
		Args:    arguments(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := pairing.OpenDefault()
			if err != nil {
				return err
			}
			if err := store.Remove(args[0]); err != nil {
				return err
			}
			fmt.Fprintf(std.Out, "Removed %q. A running relay stops using it with its next call.\n", args[0])
			return nil
		},
		ValidArgsFunction: firstArgument(completeRuntimes),
	}
}
