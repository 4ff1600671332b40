// Command relay is what an MCP host starts on the laptop: a stdio MCP server whose tools
// run Python on a paired VM. Its subcommands are for people.
//
// This package parses the command line, calls the other packages and sets the exit code.
// Each subcommand is in its own file, cmd_NAME.go.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
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
	root := rootCommand(getenv, std)
	showName(root, calledAs(args[0]))
	root.SetArgs(args[1:])
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	cmd, err := root.ExecuteContextC(ctx)
	return finish(interrupted(ctx, err), cmd, std)
}

func rootCommand(getenv func(string) string, std terminal.Streams) *cobra.Command {
	set := &config.Settings{Getenv: getenv}
	root := newRoot(set, std)
	addGroup(root, "run", "Run code:",
		attachCommand(set, std),
		exportCommand(set, std),
		inputCommand(set, std),
		interruptCommand(set, std),
		logsCommand(set, std),
		probeCommand(set, std),
		psCommand(set, std),
		restartCommand(set, std),
		runCommand(set, std),
		varsCommand(set, std),
	)
	addGroup(root, "files", "Files and data:",
		checkpointsCommand(set, std),
		getCommand(set, std),
		lsCommand(set, std),
		nbCommand(set, std),
		putCommand(set, std),
		statesCommand(set, std),
	)
	addGroup(root, "setup", "Set up:",
		bootstrapCommand(std),
		completionCommand(std),
		doctorCommand(set, std),
		initCommand(std),
		installCommand(set, std),
		pageCommand(set, std),
		pairCommand(set, std),
		runtimesCommand(set, std),
		statusCommand(set, std),
		uninstallCommand(set, std),
		unpairCommand(std),
		useCommand(set, std),
		vmCommand(set, std),
	)
	addGroup(root, "other", "Other:",
		guideCommand(set, std),
		helpCommand(),
		serveCommand(set, std),
		versionCommand(std),
	)
	root.AddCommand(helpTopics()...)
	addCompletions(root, set)
	return root
}
