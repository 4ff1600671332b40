package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"colabrelay/relay/tools"
)

func serveCommand(set *settings, std streams) *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Serve MCP on stdin and stdout (what a host starts)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), *set, std) },
	}
}

// serve runs the MCP server until the host closes stdin or ctx ends. Whatever is
// wrong with the settings, it starts: the tools say what it is.
func serve(ctx context.Context, set settings, std streams) error {
	log := slog.New(slog.NewTextHandler(std.err, nil)).With("component", "relay")
	cfg := load(set)
	log.Info("relay serves MCP on stdio", "version", version, "config", cfg)
	for _, err := range cfg.problems {
		log.Error("a setting is wrong", "err", err)
	}
	runtimes := newRuntimes(set.get, cfg.pairings, log)
	defer runtimes.close()
	relay := tools.New(tools.Config{
		Resolve: runtimes.resolve, LastSeen: runtimes.lives(byAgents),
		SaveDir: cfg.saveDir, CheckpointDir: cfg.checkpointDir, Hold: cfg.hold, Keep: cfg.keep, Guard: cfg.guard,
		Problems: cfg.problems, Version: version, Log: log,
	})
	err := relay.Serve(ctx, std.in, std.out)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
