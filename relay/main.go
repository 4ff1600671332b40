// Command relay is what an MCP host starts on the laptop: a stdio MCP server whose tools
// run Python on a paired VM. Its subcommands are for people.
//
// This package holds main and the list of commands. It must not hold what a command does: that
// is in relay/cli and the packages below it. Start reading at run.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/cli/files"
	"colabrelay/relay/cli/nb"
	"colabrelay/relay/cli/runs"
	"colabrelay/relay/cli/serve"
	"colabrelay/relay/cli/setup"
	"colabrelay/relay/cli/vm"
	"colabrelay/relay/config"
	"colabrelay/relay/op"
	"colabrelay/relay/terminal"
	"colabrelay/shared/console"
)

// version and releases are set by the linker: -ldflags "-X main.version=… -X main.releases=…".
var version, releases = "dev", ""

func main() {
	cli.Version, cli.Releases = version, releases
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program as it would any other
	os.Exit(run(ctx, os.Args, os.Getenv, terminal.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// memoryGoal is how many bytes the relay takes before Go collects garbage more often instead of
// letting the heap double: calls on a notebook of 50 MB took 360 MiB. Larger notebooks exceed it.
const memoryGoal = 150 << 20

// run is the whole program. args begins with its name. It returns the exit code; only run reads
// the environment.
func run(ctx context.Context, args []string, getenv func(string) string, std terminal.Streams) int {
	if getenv("GOMEMLIMIT") == "" { // which a user may set, as for any Go program
		debug.SetMemoryLimit(memoryGoal)
	}
	written := func() error { return nil }
	if !terminal.Is(std.Out) {
		out := console.Until(ctx, std.Out)
		std.Out, written = out, out.Err
	}
	root := rootCommand(getenv, std)
	root.SetArgs(args[1:])
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if failed := written(); err == nil && !errors.Is(failed, syscall.EPIPE) { // a host may close it before stdin
		err = failed // which the command may not have looked at
	}
	return cli.Finish(cli.Interrupted(ctx, err), cmd, std)
}

func rootCommand(getenv func(string) string, std terminal.Streams) *cobra.Command {
	set := &config.Settings{Getenv: getenv}
	root := cli.Root(set, func(cmd *cobra.Command, _ []string) error {
		if terminal.Is(std.In) {
			return setup.Welcome(cmd.Name(), set, std)
		}
		return serve.Run(cmd.Context(), *set, std)
	})
	operations := cli.Operations(set, std, "")
	addGroup := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, o := range operations {
			if o.GroupID == id {
				commands = append(commands, o)
			}
		}
		slices.SortFunc(commands, func(a, b *cobra.Command) int { return strings.Compare(a.Name(), b.Name()) })
		for _, cmd := range commands {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	addGroup("run", "Run code:",
		runs.AttachCommand(set, std), runs.ExportCommand(set, std), runs.LogsCommand(set, std), runs.RunCommand(set, std))
	addGroup("files", "Files and data:",
		nb.Command(set, std), files.PutCommand(set, std))
	addGroup("setup", "Set up:",
		setup.BootstrapCommand(std), setup.CompletionCommand(std), setup.DoctorCommand(set, std), setup.InitCommand(std),
		setup.InstallCommand(set, std), setup.PageCommand(set, std), setup.PairCommand(set, std), setup.RuntimesCommand(set, std),
		setup.SSHCommand(set, std), setup.StatusCommand(set, std), setup.UninstallCommand(set, std), setup.UnpairCommand(std),
		setup.UseCommand(set, std), vm.Command(set, std))
	addGroup("other", "Other:",
		setup.GuideCommand(set, std, op.Guide), cli.HelpCommand(), serve.Command(set, std), setup.VersionCommand(std))
	root.AddCommand(cli.HelpTopics()...)
	cli.AddCompletions(root, set)
	return root
}
