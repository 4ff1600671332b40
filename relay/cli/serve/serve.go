// Package serve is `colab-relay serve`: it wires the MCP server together. It must not know what the
// tools do. Start reading at Run.
package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"colabrelay/relay/browser"
	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/mcp"
	"colabrelay/relay/notebook"
	"colabrelay/relay/op"
	"colabrelay/relay/page"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/console"
)

// Command returns `colab-relay serve`.
func Command(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve MCP on stdin and stdout; MCP hosts start this",
		Long:    "Serve MCP on stdin and stdout until stdin ends; calls then have a second to be answered, and what they started on the VM goes on. MCP hosts start this; `colab-relay install HOST` sets one up. It starts even if settings are wrong: its tools then say what is wrong.",
		Example: "  colab-relay serve --hold 30s",
		Args:    cli.Arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return Run(cmd.Context(), *set, std) },
	}
	set.AddFlags(cmd.Flags())
	return cmd
}

// Run runs the MCP server until the host closes stdin or ctx ends. It starts even if
// settings are wrong, so that the tools can report them.
func Run(ctx context.Context, set config.Settings, std terminal.Streams) error {
	// A host that goes away closes all streams. A line of the log must not end the relay then, before
	// it has kept what the next one needs: with a receiver, the write fails instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	errs := console.New(std.Err) // which a host may never read
	defer errs.Close()
	log := slog.New(slog.NewTextHandler(errs, nil)).With("component", "relay")
	cfg := config.Load(set)
	served, _ := config.Toolsets(set) // cfg.Problems has its error
	log.Info("relay serves MCP on stdio", "version", cli.Version, "toolsets", served, "config", cfg)
	for _, err := range cfg.Problems {
		log.Error("a setting is wrong", "err", err)
	}
	kept := cli.OpenHistory(cfg, log)
	defer cli.FinishHistory(kept, io.Discard) // its log has it
	vms := cli.NewVMs(set, cfg, "", log)
	defer vms.Close()
	alive := vms.Keeper()
	pool := runtimes.New(runtimes.Config{Getenv: set.Get, Pairings: cfg.Pairings, Log: log, Record: alive.Record(kept.Record), Transport: vms.Transport})
	defer pool.Close()
	if len(cfg.Problems) == 0 {
		alive.Start(ctx, cli.WorkOf(pool), true)
		defer alive.Close()
	}
	colab := newPage(cfg, served, log)
	var start op.StartExecutor
	if colab != nil {
		defer colab.Close()
		b := cli.NewBridge(set, cfg.Pairings, log)
		defer b.Close() // while the tab is still connected
		start = b.Start
	}
	relay := op.New(op.Config{
		Resolve: pool.Resolve, LastSeen: pool.LastSeen(runtimes.Agents),
		SaveDir: cfg.SaveDir, CheckpointDir: cfg.CheckpointDir, TransferDir: cfg.TransferDir, DownloadDirs: cfg.DownloadDirs, Hold: cfg.Hold, LongWait: cfg.LongWait, Structured: cfg.Structured, TextLimit: cfg.TextLimit, Pictures: cfg.Pictures, Toolsets: served, Page: colab, VMs: vms, StartExecutor: start, Keep: cfg.Keep, Guard: cfg.Guard, Notebooks: notebookRoots(cfg),
		Problems: cfg.Problems, PairingField: cfg.PairingField, Version: cli.Version, Log: log, OneProcessor: true,
	})
	err := mcp.New(relay, op.Guide(served), cli.Version).Serve(ctx, std.In, std.Out)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// newPage returns Colab's page; nil unless its toolset is served. It listens from the first call
// that connects it.
func newPage(cfg config.Config, served []toolsets.Toolset, log *slog.Logger) *page.Page {
	if !slices.Contains(served, toolsets.Page) {
		return nil
	}
	return page.New(page.Config{Port: cfg.PagePort, Open: browser.Open, Version: cli.Version, Log: log})
}

// notebookRoots returns the folders whose notebooks tools may use.
func notebookRoots(cfg config.Config) notebook.Roots {
	home, _ := os.UserHomeDir() // a user without a home folder has no notebooks in it
	working, _ := os.Getwd()
	return notebook.Roots{Home: home, Save: cfg.SaveDir, Dirs: cfg.NotebookDirs, Working: working}
}
