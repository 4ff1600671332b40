package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
)

func guideCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "guide",
		Short:   "Print the guide for AI agents",
		Long:    "Print what the MCP server, started in this folder, tells an AI agent about its tools. Paste it into an agent's rules file if the agent ignores the tools.",
		Example: "  colab-relay guide\n  colab-relay guide >> AGENTS.md",
		Args:    arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			served, err := config.Toolsets(*set)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(std.Out, tools.Guide(served))
			return err
		},
	}
	set.AddFlags(cmd.Flags(), "RELAY_TOOLSETS")
	return cmd
}
