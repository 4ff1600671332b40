// Package vm has `colab-relay vm`: the commands that start, list and stop Colab's VMs. It must not
// speak to Google itself: relay/vm and its backends do. Start reading at Command.
package vm

import (
	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/terminal"
)

// Command returns `colab-relay vm`.
func Command(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm COMMAND",
		Short: "Start, list and stop Colab's VMs with your Google account",
		Long: "Start Colab's VMs with your Google account, with the executor running and paired, and stop them. First run `colab-relay vm login`, which shows the rules and risks.\n" +
			"A VM with an accelerator uses compute units until you stop it with `colab-relay vm down`.",
		Example: "  colab-relay vm login\n  colab-relay vm up --gpu T4,L4\n  colab-relay vm list\n  colab-relay vm down vm",
		Args:    cli.NoSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		loginCommand(set, std),
	)
	cmd.AddCommand(cli.Operations(set, std, "vm")...)
	return cmd
}
