package main

import (
	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/doctor"
	"colabrelay/relay/terminal"
)

func doctorCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything the tools need, and print what to do about problems",
		Long: "Check the settings, the folders, the MCP hosts and each paired runtime up to its kernel. Each line says ok, warn (it works, with a drawback) or fail, and what to do.\n" +
			"The exit code is 1 if a check failed.",
		Example: "  colab-relay doctor\n  colab-relay doctor --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return doctor.Run(cmd.Context(), doctor.Checkup{Config: config.Load(*set), Settings: *set, Version: version}, std.Out)
		},
	}
	set.AddFlags(cmd.Flags())
	return cmd
}
