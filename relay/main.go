// Command relay is what an MCP host starts on the laptop: a stdio MCP server
// whose tools run Python on a paired VM. It is also a command line for people: see
// run here for its subcommands.
//
// This package only wires: settings (config.go), one file per subcommand.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program as it would any other
	os.Exit(run(ctx, os.Args[1:], os.Getenv, streams{os.Stdin, os.Stdout, os.Stderr}))
}

// streams are the three a program is started with.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// run is the whole program: it gives the exit code and alone reads the environment.
func run(ctx context.Context, args []string, getenv func(string) string, std streams) int {
	set := settings{getenv: getenv}
	root := &cobra.Command{
		Use:           "relay",
		Short:         "Run Python on a paired Colab VM from an MCP host",
		Long:          "Without a subcommand relay is the stdio MCP server that an MCP host starts.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), set, std) },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	set.flags(root.PersistentFlags())
	root.AddCommand(serveCommand(&set, std), initCommand(std), pairCommand(&set, std), unpairCommand(std),
		runtimesCommand(&set, std), statusCommand(&set, std), doctorCommand(&set, std), installCommand(&set, std),
		runCommand(&set, std), getCommand(&set, std), putCommand(&set, std), bootstrapCommand(std), versionCommand(std))
	root.SetArgs(args)
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	err := root.ExecuteContext(ctx)
	var exit exitCode
	if errors.As(err, &exit) {
		return int(exit)
	}
	if errors.Is(err, errTold) {
		return 1
	}
	if err != nil {
		fmt.Fprintf(std.err, "relay: %s\n", plain.Text(err.Error()))
		if step := hint.Person(err); step != "" {
			fmt.Fprintf(std.err, "  next step: %s\n", plain.Line(step))
		}
		return 1
	}
	return 0
}

func versionCommand(std streams) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the relay's version", Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { fmt.Fprintln(std.out, version) },
	}
}
