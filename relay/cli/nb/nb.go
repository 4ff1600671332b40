// Package nb has the commands of `colab-relay nb` that do more than their operations: they take the
// source of a cell from a file, stdin or an editor, and show a run as it goes on. They must not read
// or edit a notebook's JSON themselves: the operations of relay/op do. Start reading at Command.
package nb

import (
	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/terminal"
)

// Command returns `colab-relay nb`.
func Command(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nb COMMAND",
		Short: "Read, edit and run notebooks on this computer",
		Long: "Read, edit and run .ipynb files of this computer. Edits change only the lines they are about, so a file keeps its form, its outputs and its metadata.\n" +
			"A cell is named by its id, which `colab-relay nb cells FILE` lists, or by its index, which counts from 0. Quote ids that begin with #, because a shell takes them for comments.",
		Example: "  colab-relay nb cells analysis.ipynb\n" +
			"  colab-relay nb add analysis.ipynb -c 'df.describe()'\n" +
			"  colab-relay nb run analysis.ipynb",
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cli.Operations(set, std, "nb")...)
	cmd.AddCommand(addCommand(set, std), editCommand(set, std), runCommand(set, std))
	return cmd
}
