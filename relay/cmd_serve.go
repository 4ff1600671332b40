package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"colabrelay/relay/bridge"
	"colabrelay/relay/browser"
	"colabrelay/relay/config"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
)

func serveCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve MCP on stdin and stdout; MCP hosts start this",
		Long:    "Serve MCP on stdin and stdout until stdin ends. MCP hosts start this; `colab-relay install HOST` sets one up. It starts even if settings are wrong: its tools then say what is wrong.",
		Example: "  colab-relay serve --hold 30s",
		Args:    arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), *set, std) },
	}
	set.AddFlags(cmd.Flags())
	return cmd
}

// memoryGoal is how many bytes the relay takes before Go collects garbage more often instead of
// letting the heap double: calls on a notebook of 50 MB took 360 MiB. Larger notebooks exceed it.
const memoryGoal = 150 << 20

// serve runs the MCP server until the host closes stdin or ctx ends. It starts even if
// settings are wrong, so that the tools can report them.
func serve(ctx context.Context, set config.Settings, std terminal.Streams) error {
	log := slog.New(slog.NewTextHandler(std.Err, nil)).With("component", "relay")
	cfg := config.Load(set)
	toolsets, _ := config.Toolsets(set) // cfg.Problems has its error
	if set.Get("GOMEMLIMIT") == "" {    // which a user may set, as for any Go program
		debug.SetMemoryLimit(memoryGoal)
	}
	log.Info("relay serves MCP on stdio", "version", version, "toolsets", toolsets, "config", cfg)
	for _, err := range cfg.Problems {
		log.Error("a setting is wrong", "err", err)
	}
	kept := openHistory(cfg, log)
	defer kept.close(io.Discard) // its log has it
	vms := newVMs(set, cfg, "", log)
	defer vms.Close()
	alive := newKeepAlive(vms, true)
	pool := runtimes.New(runtimes.Config{Getenv: set.Get, Pairings: cfg.Pairings, Log: log, Record: alive.record(kept.record()), Transport: vms.Transport})
	defer pool.Close()
	if len(cfg.Problems) == 0 {
		alive.start(ctx, pool)
		defer alive.close()
	}
	colab := newPage(cfg, toolsets, log)
	var start tools.StartExecutor
	if colab != nil {
		defer colab.Close()
		b := newBridge(set, cfg.Pairings, log)
		defer b.Close() // while the tab is still connected
		start = func(ctx context.Context, tab *page.Tab, r bridge.Request, step func(string)) (bridge.Paired, error) {
			return b.Start(ctx, tab, r, step)
		}
	}
	relay := tools.New(tools.Config{
		Resolve: pool.Resolve, LastSeen: pool.LastSeen(runtimes.Agents),
		SaveDir: cfg.SaveDir, CheckpointDir: cfg.CheckpointDir, Hold: cfg.Hold, TextLimit: cfg.TextLimit, Toolsets: toolsets, Page: colab, VMs: vms, StartExecutor: start, Elicit: cfg.Elicit, Keep: cfg.Keep, Guard: cfg.Guard, Notebooks: notebookRoots(cfg),
		Problems: cfg.Problems, Version: version, Log: log, UseAllProcessors: oneProcessor().useAll,
	})
	err := relay.Serve(ctx, std.In, std.Out)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// newPage returns Colab's page; nil unless its toolset is served. It listens from the first call
// that connects it.
func newPage(cfg config.Config, toolsets []tools.Toolset, log *slog.Logger) *page.Page {
	if !slices.Contains(toolsets, tools.Page) {
		return nil
	}
	return page.New(page.Config{Port: cfg.PagePort, Open: browser.Open, Dir: cfg.PageDir, Version: version, Log: log})
}

// notebookRoots returns the folders whose notebooks tools may use.
func notebookRoots(cfg config.Config) notebook.Roots {
	home, _ := os.UserHomeDir() // a user without a home folder has no notebooks in it
	working, _ := os.Getwd()
	return notebook.Roots{Home: home, Save: cfg.SaveDir, Dirs: cfg.NotebookDirs, Working: working}
}
