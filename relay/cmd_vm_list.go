package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
)

func vmListCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the VMs that this computer started, and others of the account",
		Long:    "List the VMs that this computer started, whether or not Colab still has them, and all others of the account that Google's service shows, such as those of open notebooks.",
		Example: "  colab-relay vm list\n  colab-relay vm list --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withVMs(set, "", func(m *vm.Manager) error { return listVMs(cmd.Context(), m, asJSON, std) })
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func listVMs(ctx context.Context, m *vm.Manager, asJSON bool, std terminal.Streams) error {
	all, err := m.List(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(std.Out, all)
	}
	for _, note := range all.Notes {
		fmt.Fprintf(std.Err, "note: %s\n", plain.Line(note))
	}
	if len(all.VMs) == 0 {
		if len(all.Notes) > 0 {
			fmt.Fprintln(std.Err, "no VMs to show; the notes above say what may be missing")
			return nil
		}
		fmt.Fprintln(std.Err, "no VMs: `colab-relay vm up` starts one")
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "HARDWARE"}, terminal.Column{Title: "STATE"}, terminal.Column{Title: "REQUESTED"}, terminal.Column{Title: "REACHED BY"}, terminal.Column{Title: "ID"})
	for _, v := range all.VMs {
		asked := ""
		if !v.Asked.IsZero() {
			asked = when(v.Asked, time.Now())
		}
		table.Add(v.Name, hardware(v), string(v.State), asked, string(v.Via), v.ID)
	}
	if err := table.Print(std.Out); err != nil {
		return err
	}
	for _, v := range all.VMs {
		if v.Note != "" && v.State != vm.StateReady {
			fmt.Fprintf(std.Err, "%s: %s\n", v.Name, plain.Line(v.Note))
		}
	}
	return nil
}
