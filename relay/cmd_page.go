package main

import (
	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/terminal"
)

func pageCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "page COMMAND",
		Short: "Connect with a notebook that is open in Colab's page",
		Long: "A tab of Colab can connect with a relay on this computer; an agent then reads, edits and runs the cells that you see in your browser. An agent connects a tab itself, with its tool open_colab_browser_connection. These commands try that without an agent, start the executor on the page's VM, and show or end the connections of running relays.\n" +
			"A tab connects to one relay. Colab asks you to confirm every connection.",
		Example: "  colab-relay page open\n  colab-relay page status\n  colab-relay page close",
		Args:    noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		pageOpenCommand(set, std),
		pageStatusCommand(set, std),
		pageCloseCommand(set, std),
	)
	return cmd
}
