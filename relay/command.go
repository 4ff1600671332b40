package main

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"colabrelay/relay/config"
	"colabrelay/relay/suggest"
	"colabrelay/relay/terminal"
)

// newRoot returns the command without its subcommands.
func newRoot(set *config.Settings, std terminal.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   commandName,
		Short: "Run Python on a paired Colab VM",
		Long: "Run Python on a Google Colab VM, or on any other machine, from this computer.\n" +
			"A runtime is a VM that this computer is paired with. The executor is the program that runs there; its Colab cell starts it. Started without a command by an MCP host, it is the MCP server for that host's AI agent.",
		Example: "  colab-relay pair                       # paste what the executor's cell printed\n" +
			"  colab-relay run train.py               # run a file on the VM\n" +
			"  colab-relay get /content/model.pt      # download a result\n" +
			"  colab-relay install claude-desktop     # let an agent use the VM",
		Version:       version, // without a template of ours, which adds 3 MB to the program
		Args:          noSuchCommand,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if terminal.Is(std.In) {
				return welcome(cmd.Name(), set, std)
			}
			return serve(cmd.Context(), *set, std)
		},
	}
	set.AddFlags(root.Flags())
	root.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true }) // those of serve, which it is then
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(showHelp)
	root.CompletionOptions.DisableDefaultCmd = true // completionCommand is shorter
	cobra.EnableCommandSorting = false
	return root
}

// addGroup adds commands under a title in the list of commands.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = id
		root.AddCommand(cmd)
	}
}

// addRuntimeFlag adds --runtime to a command that talks to a VM.
func addRuntimeFlag(cmd *cobra.Command, name *string) {
	addRuntimeFlagFor(cmd, name, "use the paired runtime `NAME` instead of the default one")
}

// addRuntimeFlagFor adds a --runtime of another meaning.
func addRuntimeFlagFor(cmd *cobra.Command, name *string, usage string) {
	cmd.Flags().StringVar(name, "runtime", "", usage)
	if err := cmd.RegisterFlagCompletionFunc("runtime", completeRuntimes); err != nil {
		panic(err) // the flag exists
	}
}

// arguments accepts from least to most arguments.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch n := len(args); {
		case n < least:
			return usagef("%s is missing; usage: %s", strings.Fields(cmd.Use)[n+1], cmd.UseLine())
		case n > most:
			return usagef("unexpected argument %q; usage: %s", args[most], cmd.UseLine())
		}
		return nil
	}
}

// noSuchCommand refuses what follows the name of a program or command and is no command.
func noSuchCommand(parent *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if ext := filepath.Ext(args[0]); ext == ".ipynb" || ext == ".py" && !parent.HasParent() {
		return usagef("unknown command %q: `%s run %s` runs a file", args[0], parent.CommandPath(), args[0])
	}
	var known []string
	for _, cmd := range parent.Commands() {
		if cmd.IsAvailableCommand() {
			known = append(known, cmd.Name())
		}
	}
	return usagef("unknown command %q%s", args[0], suggest.Meant(args[0], known))
}

// flagError describes a wrong flag.
func flagError(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usagef("--%s %q: %s", wrong.GetFlag().Name, wrong.GetValue(), badValue(wrong.GetFlag().Value.Type(), wrong))
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	switch {
	case !ok:
		return usageError{err}
	case unknown.GetSpecifiedShortnames() != "":
		return usagef("unknown flag -%s", unknown.GetSpecifiedName())
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	})
	return usagef("unknown flag --%s%s", unknown.GetSpecifiedName(), suggest.Meant("--"+unknown.GetSpecifiedName(), known))
}

// badValue says what a flag of a type takes.
func badValue(kind string, err error) string {
	switch kind {
	case "int", "int64":
		return "use a whole number"
	case "duration":
		return "use a time such as 90s, 10m or 2h"
	case "bool":
		return "use true or false"
	}
	return errors.Unwrap(err).Error()
}
