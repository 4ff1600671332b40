// Package page has `colab-relay page`: the commands that connect a tab of Colab in this person's
// browser. It must not speak to the tab itself: relay/page
// does. Start reading at Command.
package page

import (
	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/terminal"
)

// Command returns `colab-relay page`.
func Command(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "page COMMAND",
		Short: "Connect with a notebook that is open in Colab's page",
		Long: "A tab of Colab can connect with a relay on this computer; an agent then reads, edits and runs the cells that you see in your browser. An agent connects a tab itself, with its tool open_colab_browser_connection. `colab-relay page open` tries that without an agent, and can start the executor on the page's VM.\n" +
			"A tab connects to one relay. Colab asks you to confirm every connection.",
		Example: "  colab-relay page open",
		Args:    cli.NoSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(openCommand(set, std))
	return cmd
}
