package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
)

func vmDownCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "down NAME",
		Short: "Stop a VM; everything on it is lost",
		Long: "Stop a VM and wait until Google no longer lists it. Everything on it is lost, and its pairing is removed. NAME is the VM's name or its id, as `colab-relay vm list` shows them. It also ends a start in progress, and removes a VM from the list that Colab has ended or never created.\n" +
			"A VM that this computer did not start, such as that of an open notebook, is stopped only with --force and its id.",
		Example: "  colab-relay vm down vm\n  colab-relay vm down --force m-s-1a2b3c",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withVMs(set, "", func(m *vm.Manager) error {
				stopped, err := m.Down(cmd.Context(), args[0], force)
				if err != nil {
					return err
				}
				name := stopped.Name
				if name == "" {
					name = stopped.ID
				}
				fmt.Fprintf(std.Out, "VM %q (%s) is stopped: Google no longer lists it.\n", name, hardware(stopped))
				return nil
			})
		},
		ValidArgsFunction: completeVMs(set),
	}
	cmd.Flags().BoolVar(&force, "force", false, "also stop a VM that this computer did not start")
	return cmd
}
