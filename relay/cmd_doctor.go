package main

import (
	"io"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/doctor"
	"colabrelay/relay/terminal"
)

func doctorCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything from the settings to the VM, and say what to do",
		Long: "Check the settings, the folders, the MCP hosts and each paired runtime up to its kernel. Each line says ok, warn (it works, with a drawback) or fail, and what to do. Nothing is changed.\n" +
			"The exit code is 1 if a check failed.",
		Example: "  colab-relay doctor\n  colab-relay doctor --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := config.Load(*set)
			checkup := doctor.Checkup{Config: cfg, Settings: *set, Version: version, Transport: vmTransport(*set, cfg)}
			if !asJSON {
				_, err := doctor.Run(cmd.Context(), checkup, std.Out)
				return err
			}
			findings, failed := doctor.Run(cmd.Context(), checkup, io.Discard)
			if err := printJSON(std.Out, struct {
				Checks []doctor.Finding `json:"checks"`
			}{findings}); err != nil {
				return err
			}
			return failed
		},
	}
	set.AddFlags(cmd.Flags())
	addJSONFlag(cmd, &asJSON)
	return cmd
}
