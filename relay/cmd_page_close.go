package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/page"
	"colabrelay/relay/terminal"
)

func pageCloseCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	pid := 0
	cmd := &cobra.Command{
		Use:   "close",
		Short: "End the connections with Colab's page",
		Long: "End the connections of your relays with Colab's page, and let no tab connect until an agent asks for one again. Cells that run go on in Colab.\n" +
			"Without --pid, this is done for every relay that `colab-relay page status` lists. The relays themselves go on.",
		Example: "  colab-relay page close\n  colab-relay page close --pid 4711",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			others, err := otherPages(set)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("pid") {
				others = slices.DeleteFunc(others, func(o *page.Other) bool { return o.PID != pid })
				if len(others) == 0 {
					return fmt.Errorf("no relay with the pid %d waits for Colab's page; `colab-relay page status` lists those that do", pid)
				}
			}
			if len(others) == 0 {
				fmt.Fprintln(std.Err, noPages)
				return nil
			}
			return closePages(cmd.Context(), others, std)
		},
	}
	cmd.Flags().IntVar(&pid, "pid", 0, "only of the relay with this `PID`")
	return cmd
}

func closePages(ctx context.Context, others []*page.Other, std terminal.Streams) error {
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	var failed []error
	for _, other := range others {
		if err := other.Close(ctx); err != nil {
			failed = append(failed, fmt.Errorf("close the page of the relay with the pid %d: %w", other.PID, err))
			continue
		}
		fmt.Fprintf(std.Out, "Closed the connection of the relay with the pid %d (port %d).\n", other.PID, other.Port)
	}
	return errors.Join(failed...)
}
