package setup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/suggest"
	"colabrelay/relay/terminal"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/contract"
)

// Welcome tells a person who started the program without a command what it is and what to
// do next. name is the name by which the program was called.
func Welcome(name string, set *config.Settings, std terminal.Streams) error {
	store, err := pairing.OpenDefault()
	if err != nil {
		return err
	}
	fmt.Fprintf(std.Out, "%s runs Python on a Google Colab VM, or on any other machine, from this computer.\n\n", name)
	r, err := pairing.Resolve("", set.Get, store)
	switch {
	case err == nil:
		fmt.Fprintf(std.Out, "The default runtime is %q, %s.\n\n", r.Name, plain.Line(r.URL))
		printSteps(std.Out, [][2]string{
			{name + " status", "does the VM answer?"},
			{name + " run -c 'print(6 * 7)'", "run code; a FILE works too"},
			{name + " get REMOTE", "download a result"},
			{name + " install HOST", "let an AI agent use the VM"},
		})
	case errors.Is(err, pairing.ErrNotPaired):
		start := [2]string{"(README.txt of its archive)", "2. start the executor on the VM"}
		if cli.Releases != "" { // else this build knows no cell
			start = [2]string{name + " bootstrap", "2. start the executor: print its cell, and run it in Colab"}
		}
		fmt.Fprintln(std.Out, "This computer is not paired with a VM yet. The relay is installed; these steps are next:")
		printSteps(std.Out, [][2]string{
			{name + " install HOST", "1. add the relay to your MCP host"},
			start,
			{name + " ssh HOST", "or, on a machine that you reach by SSH: instead of 2 and 3"},
			{name + " pair", "3. pair: paste the pairing string that the cell prints"},
			{name + " status", "4. check; the agent does it, too"},
		})
	default:
		fmt.Fprintf(std.Out, "%s\n\n", plain.Line(err.Error()))
		printSteps(std.Out, [][2]string{
			{name + " runtimes", "list the paired runtimes"},
			{name + " doctor", "find out what is wrong"},
		})
	}
	_, err = fmt.Fprintf(std.Out, "\n`%s --help` lists all commands. MCP hosts start `%s serve`.\n", name, name)
	return err
}

func printSteps(out io.Writer, steps [][2]string) {
	for _, s := range steps {
		fmt.Fprintf(out, "  %-36s %s\n", s[0], s[1])
	}
}

// GuideCommand returns `colab-relay guide`. guide returns what an agent is told about these sets of
// tools.
func GuideCommand(set *config.Settings, std terminal.Streams, guide func(served []toolsets.Toolset) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "guide",
		Short:   "Print the guide for AI agents",
		Long:    "Print what the MCP server, started in this folder, tells an AI agent about its tools. Paste it into an agent's rules file if the agent ignores the tools.",
		Example: "  colab-relay guide\n  colab-relay guide >> AGENTS.md",
		Args:    cli.Arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			served, err := config.Toolsets(*set)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(std.Out, guide(served))
			return err
		},
	}
	set.AddFlags(cmd.Flags(), "RELAY_TOOLSETS")
	return cmd
}

// PageCommand returns `colab-relay page`.
func PageCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "page COMMAND",
		Short: "Connect with a notebook that is open in Colab's page",
		Long: "A tab of Colab can connect with a relay on this computer; an agent then reads, edits and runs the cells that you see in your browser. An agent connects a tab itself, with its tool open_colab_browser_connection. `colab-relay page open` tries that without an agent, and can start the executor on the page's VM.\n" +
			"A tab connects to one relay. Colab asks you to confirm every connection.",
		Example: "  colab-relay page open",
		Args:    cli.NoSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cli.Operations(set, std, "page")...)
	return cmd
}

// VersionCommand returns `colab-relay version`.
func VersionCommand(std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version. --json also prints the protocol, which must equal the executor's, and the path of this program.",
		Example: "  colab-relay version\n  colab-relay version --json",
		Args:    cli.Arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if !asJSON {
				_, err := fmt.Fprintln(std.Out, cli.Version)
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program's own path: %v", err)
			}
			return cli.PrintJSON(std.Out, struct {
				Version    string `json:"version"`
				Protocol   int    `json:"protocol"`
				Go         string `json:"go"`
				OS         string `json:"os"`
				Arch       string `json:"arch"`
				Executable string `json:"executable"`
			}{cli.Version, contract.Protocol, runtime.Version(), runtime.GOOS, runtime.GOARCH, program})
		},
	}
	cli.AddJSONFlag(cmd, &asJSON)
	return cmd
}

// shellNames are in the order of the help.
var shellNames = []string{"bash", "zsh", "fish", "powershell"}

// CompletionCommand returns `colab-relay completion`.
func CompletionCommand(std terminal.Streams) *cobra.Command {
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
		Args:      cli.Arguments(1, 1),
		ValidArgs: shellNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(std.Out, true)
			case "zsh":
				return root.GenZshCompletion(std.Out)
			case "fish":
				return root.GenFishCompletion(std.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(std.Out)
			}
			return cli.Usagef("no completion for %q%s: use bash, zsh, fish or powershell", args[0], suggest.Meant(args[0], shellNames))
		},
	}
}
