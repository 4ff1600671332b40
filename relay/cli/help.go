package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/terminal"
)

// helpWidth is the longest line of a help text, in characters.
const helpWidth = 100

// HelpCommand replaces cobra's own, which succeeds for a command that does not exist.
func HelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND | TOPIC]",
		Short:   "Show the help of a command or topic",
		Example: "  colab-relay help run\n  colab-relay help exit-codes",
		Args:    Arguments(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			about := cmd.Root()
			for _, name := range args {
				next, known := child(about, name)
				if next == nil {
					return Usagef("no help for %q%s; `%s help` lists all commands and topics", name, meant(about, name, known), cmd.Root().Name())
				}
				about = next
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			about := cmd.Root()
			for _, name := range args {
				if about, _ = child(about, name); about == nil {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
			}
			for _, each := range about.Commands() {
				names = append(names, cobra.CompletionWithDesc(each.Name(), each.Short))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// child returns the command of that name below another one, or nil, and the names of all.
func child(parent *cobra.Command, name string) (found *cobra.Command, known []string) {
	for _, each := range parent.Commands() {
		if each.Name() == name {
			found = each
		}
		known = append(known, each.Name())
	}
	return found, known
}

// HelpTopics are texts about all commands. cobra shows a command that cannot run as a
// help topic.
func HelpTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "environment", Short: "The settings, as environment variables", Long: environmentText()},
		{Use: "exit-codes", Short: "What the exit codes mean", Long: "The exit code of a command is\n\n" +
			"  0   if it succeeded;\n" +
			"  1   after an error, or if the code on the VM raised an exception;\n" +
			"  64  if the command line was wrong: nothing was done;\n" +
			"  69  if the VM did not answer, or no tab of Colab connected: the same command may work later;\n" +
			"  75  if a run may still be running on the VM: you left it, it ignored an interrupt, or the connection was lost.\n\n" +
			"`colab-relay run` also ends with the code that the program on the VM passed to exit() or sys.exit() (0 to 255)."},
	}
}

func environmentText() string {
	var b strings.Builder
	b.WriteString("Settings are environment variables; an empty one counts as unset. In an MCP host's configuration they go into the relay's \"env\" block. Some commands have a flag for a setting, which takes precedence.\n\n")
	for _, s := range config.All {
		fmt.Fprintf(&b, "  %-24s %s\n", s.Variable, strings.ReplaceAll(s.Usage, "`", ""))
	}
	b.WriteString("\nNO_COLOR with any value turns off the colours of this program and of tracebacks. What your code prints keeps its colours on a terminal.\n")
	return b.String()
}

// ShowHelp prints what --help shows.
func ShowHelp(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	width := min(terminal.Width(out), helpWidth)
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintln(out, wrap(spaced(strings.TrimSpace(text)), width))
	if cmd.Runnable() {
		fmt.Fprintf(out, "\nUsage:\n  %s\n", useLine(cmd))
	}
	if cmd.HasExample() {
		fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, group := range groups(cmd) {
		fmt.Fprintf(out, "\n%s\n", group.Title)
		for _, each := range cmd.Commands() {
			if each.GroupID == group.ID && each.IsAvailableCommand() {
				fmt.Fprintf(out, "  %-12s %s\n", each.Name(), each.Short)
			}
		}
	}
	if cmd.HasHelpSubCommands() {
		fmt.Fprintf(out, "\nHelp topics:\n")
		for _, each := range cmd.Commands() {
			if each.IsAdditionalHelpTopicCommand() {
				fmt.Fprintf(out, "  %-12s %s\n", each.Name(), each.Short)
			}
		}
	}
	if cmd.HasAvailableLocalFlags() && cmd.Runnable() {
		fmt.Fprintf(out, "\nFlags:\n%s", cmd.LocalFlags().FlagUsagesWrapped(width))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\n`%s COMMAND --help` shows more about a command.\n", cmd.CommandPath())
	}
}

// groups returns the groups of cmd's commands; those of a command without groups are one.
func groups(cmd *cobra.Command) []*cobra.Group {
	if cmd.HasAvailableSubCommands() && len(cmd.Groups()) == 0 {
		return []*cobra.Group{{Title: "Commands:"}}
	}
	return cmd.Groups()
}

// useLine returns how to call cmd.
func useLine(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine()
}
