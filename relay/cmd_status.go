package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

func statusCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the settings and whether each paired executor answers",
		Long:  "Show the settings and whether each paired executor answers. The exit code is 1 unless the default runtime answers.",
		Args:  arguments(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return status(cmd.Context(), *set, std) },
	}
	set.AddFlags(cmd.Flags())
	return cmd
}

// status prints the settings of the MCP server, and what answers at each runtime. It
// returns an error unless the default runtime answers.
func status(ctx context.Context, set config.Settings, std terminal.Streams) error {
	cfg := config.Load(set)
	fmt.Fprintf(std.Out, "relay %s\nfolder for downloads, pictures and long outputs: %s\nfolder for chunked runs, kernel states and saved answers: %s\na call waits at most %s for a result\n", version, cfg.SaveDir, cfg.CheckpointDir, cfg.Hold)
	for _, err := range cfg.Problems {
		fmt.Fprintf(std.Out, "wrong setting: %s\n", plain.Line(err.Error()))
	}
	if cfg.Pairings == nil {
		return errors.New(plain.Count(len(cfg.Problems), "wrong setting"))
	}
	all, err := cfg.Pairings.List()
	if err != nil {
		return err
	}
	inUse, unclear := pairing.Resolve("", set.Get, cfg.Pairings)
	if inUse.Name == pairing.EnvName {
		all = append([]pairing.Runtime{inUse}, all...)
	}
	connected := false
	for _, r := range all {
		mark := ""
		if r.Name == inUse.Name {
			mark = " (default)"
		}
		if r.URL == "" {
			fmt.Fprintf(std.Out, "%q %v%s\n", r.Name, pairing.ErrNoAddress, mark)
			continue
		}
		fmt.Fprintf(std.Out, "%q %s%s\n", r.Name, plain.Line(r.URL), mark)
		answers := printExecutor(ctx, r, std.Out)
		connected = connected || answers && r.Name == inUse.Name
	}
	switch {
	case len(cfg.Problems) > 0:
		return errors.New(plain.Count(len(cfg.Problems), "wrong setting"))
	case unclear != nil:
		return unclear
	case !connected:
		return fmt.Errorf("the default runtime %q does not answer", inUse.Name)
	}
	return nil
}
