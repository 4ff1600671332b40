package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
)

func statusCommand(set *settings, std streams) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the settings and whether each paired executor answers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return status(cmd.Context(), *set, std) },
	}
}

// status prints what the MCP server would work with. It fails when the runtime
// a call would mean does not answer.
func status(ctx context.Context, set settings, std streams) error {
	cfg := load(set)
	fmt.Fprintf(std.out, "relay %s\nsaves to %s, checkpoints in %s, a call waits %s at most\n", version, cfg.saveDir, cfg.checkpointDir, cfg.hold)
	for _, err := range cfg.problems {
		fmt.Fprintf(std.out, "wrong setting: %s\n", plain.Line(err.Error()))
	}
	if len(cfg.problems) > 0 {
		return fmt.Errorf("%d wrong setting(s)", len(cfg.problems))
	}
	meant, err := pairing.Resolve("", set.get, cfg.pairings)
	if err != nil {
		fmt.Fprintf(std.out, "no runtime is the default one: %s\n", plain.Line(err.Error()))
	}
	connected := false
	if meant.Name == pairing.EnvName {
		fmt.Fprintf(std.out, "%q %s (default)\n", meant.Name, plain.Line(meant.URL))
		connected = tell(ctx, meant, std.out)
	}
	all, listErr := cfg.pairings.List()
	if listErr != nil {
		return listErr
	}
	for _, r := range all {
		mark := ""
		if r.Name == meant.Name {
			mark = " (default)"
		}
		if r.URL == "" {
			fmt.Fprintf(std.out, "%q %v%s\n", r.Name, pairing.ErrNoAddress, mark)
			continue
		}
		fmt.Fprintf(std.out, "%q %s%s\n", r.Name, plain.Line(r.URL), mark)
		ok := tell(ctx, r, std.out)
		connected = connected || ok && r.Name == meant.Name
	}
	if !connected {
		return errors.New("the default runtime does not answer")
	}
	return nil
}
