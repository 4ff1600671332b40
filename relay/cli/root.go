package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"colabrelay/relay/config"
)

// Root returns the program's command without its subcommands, and run, which it does without one.
func Root(set *config.Settings, run func(*cobra.Command, []string) error) *cobra.Command {
	root := &cobra.Command{
		Use:   CommandName,
		Short: "Run Python on a paired Colab VM",
		Long: "Run Python on a Google Colab VM, or on any other machine, from this computer.\n" +
			"A runtime is a VM that this computer is paired with. The executor is the program that runs there; on Colab, its cell starts it. Started without a command by an MCP host, it is the MCP server for that host's AI agent.",
		Example: "  colab-relay pair                       # paste what the executor printed\n" +
			"  colab-relay run train.py               # run a file on the VM\n" +
			"  colab-relay get /content/model.pt      # download a result\n" +
			"  colab-relay install claude-desktop     # let an agent use the VM",
		Version:       Version, // without a template of ours, which adds 3 MB to the program
		Args:          NoSuchCommand,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          run,
	}
	set.AddFlags(root.Flags())
	root.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true }) // those of serve, which it is then
	root.SetFlagErrorFunc(FlagError)
	root.SetHelpFunc(ShowHelp)
	cobra.EnableCommandSorting = false
	root.CompletionOptions.DisableDefaultCmd = true // setup.CompletionCommand is shorter
	return root
}
