package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
)

func guideCommand(std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:     "guide",
		Short:   "Print the guide for AI agents",
		Long:    "Print what the MCP server tells an AI agent about its tools. Paste it into an agent's rules file if the agent ignores the tools.",
		Example: "  colab-relay guide\n  colab-relay guide >> AGENTS.md",
		Args:    arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(std.Out, tools.Guide)
			return err
		},
	}
}
