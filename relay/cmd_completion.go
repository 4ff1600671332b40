package main

import (
	"github.com/spf13/cobra"

	"colabrelay/relay/suggest"
	"colabrelay/relay/terminal"
)

// shells are those for which cobra writes a completion script.
var shells = map[string]func(root *cobra.Command, std terminal.Streams) error{
	"bash": func(root *cobra.Command, std terminal.Streams) error { return root.GenBashCompletionV2(std.Out, true) },
	"fish": func(root *cobra.Command, std terminal.Streams) error { return root.GenFishCompletion(std.Out, true) },
	"powershell": func(root *cobra.Command, std terminal.Streams) error {
		return root.GenPowerShellCompletionWithDesc(std.Out)
	},
	"zsh": func(root *cobra.Command, std terminal.Streams) error { return root.GenZshCompletion(std.Out) },
}

// shellNames are in the order of the help.
var shellNames = []string{"bash", "zsh", "fish", "powershell"}

func completionCommand(std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the script that completes commands in a shell",
		Long: "Print the script with which bash, zsh, fish or powershell completes commands, flags and names of runtimes. Completion uses no network.\n" +
			"Add the line for your shell to its start-up file:\n\n" +
			"  ~/.bashrc                    source <(colab-relay completion bash)   # needs the package bash-completion\n" +
			"  ~/.zshrc                     source <(colab-relay completion zsh)    # after compinit\n" +
			"  ~/.config/fish/config.fish   colab-relay completion fish | source\n" +
			"  $PROFILE                     colab-relay completion powershell | Out-String | Invoke-Expression",
		Example:   "  colab-relay completion zsh",
		Args:      arguments(1, 1),
		ValidArgs: shellNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			write, known := shells[args[0]]
			if !known {
				return usagef("no completion for %q%s: use bash, zsh, fish or powershell", args[0], suggest.Meant(args[0], shellNames))
			}
			return write(cmd.Root(), std)
		},
	}
}
