// Command relay is what an MCP host starts on the laptop: a stdio MCP server whose tools
// run Python on a paired VM. Its subcommands are for people.
//
// This package parses the command line, calls the other packages and sets the exit code.
// Each subcommand is in its own file, cmd_NAME.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"colabrelay/relay/config"
	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program as it would any other
	os.Exit(run(ctx, os.Args, os.Getenv, terminal.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// run is the whole program. args begins with the name by which it was called. It returns
// the exit code; only run reads the environment.
func run(ctx context.Context, args []string, getenv func(string) string, std terminal.Streams) int {
	name := calledAs(args[0])
	root := rootCommand(getenv, std)
	showName(root, name)
	root.SetArgs(args[1:])
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	return exitStatus(root.ExecuteContext(ctx), name, std)
}

func rootCommand(getenv func(string) string, std terminal.Streams) *cobra.Command {
	set := &config.Settings{Getenv: getenv}
	root := &cobra.Command{
		Use:           commandName,
		Short:         "Run Python on a paired Colab VM from an MCP host",
		Long:          "Run Python on a paired Colab VM. Without a subcommand, it is the stdio MCP server that an MCP host starts.",
		Version:       version, // without a template of ours, which adds 3 MB to the program
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), *set, std) },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; `%s --help` lists the flags", err, cmd.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	set.AddFlags(root.PersistentFlags())
	root.AddCommand(serveCommand(set, std), initCommand(std), pairCommand(std), unpairCommand(std),
		runtimesCommand(set, std), statusCommand(set, std), doctorCommand(set, std), installCommand(set, std),
		runCommand(set, std), getCommand(set, std), putCommand(set, std), bootstrapCommand(std), versionCommand(std))
	for _, cmd := range root.Commands() {
		if slices.Contains([]string{"init", "pair", "unpair", "install", "bootstrap", "version"}, cmd.Name()) {
			hideSettings(cmd)
		}
	}
	return root
}

// hideSettings omits the flags of the settings from the help of a command that reads none.
func hideSettings(cmd *cobra.Command) {
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
		cmd.Parent().HelpFunc()(cmd, args)
	})
}

// arguments accepts from least to most arguments.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch n := len(args); {
		case n < least:
			return fmt.Errorf("%s is missing; usage: %s", strings.Fields(cmd.Use)[n+1], cmd.UseLine())
		case n > most:
			return fmt.Errorf("unexpected argument %q; usage: %s", args[most], cmd.UseLine())
		}
		return nil
	}
}

// exitStatus prints an error and its next step, and returns the exit code.
func exitStatus(err error, name string, std terminal.Streams) int {
	if exit, ok := errors.AsType[remoterun.ExitCode](err); ok {
		return int(exit)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, remoterun.ErrPrinted):
		return 1
	}
	fmt.Fprintf(std.Err, "%s: %s\n", name, plain.Text(err.Error()))
	if step := hint.Person(err); step != "" {
		fmt.Fprintf(std.Err, "  next step: %s\n", plain.Line(step))
	}
	return 1
}
