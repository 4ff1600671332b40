package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
)

func statesCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "states",
		Short: "List the kernel states saved on this computer",
		Long: "List the kernel states that save_kernel_state saved on this computer, with all their versions. It contacts no VM.\n" +
			"An agent restores one with restore_kernel_state.",
		Example:           "  colab-relay states\n  colab-relay states --json",
		Args:              arguments(0, 0),
		RunE:              func(*cobra.Command, []string) error { return listStates(set, asJSON, std) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	set.AddFlags(cmd.Flags(), "CHECKPOINT_DIR")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func listStates(set *config.Settings, asJSON bool, std terminal.Streams) error {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return err
	}
	all, err := kernelstate.List(cfg.CheckpointDir)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(std.Out, struct {
			States []kernelstate.Listed `json:"states"`
		}{all})
	}
	if len(all) == 0 {
		fmt.Fprintln(std.Err, "no kernel states yet: an agent saves the kernel's variables with save_kernel_state")
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "RUNTIME"}, terminal.Column{Title: "WHEN"},
		terminal.Column{Title: "VARIABLES", Right: true}, terminal.Column{Title: "VERSIONS", Right: true}, terminal.Column{Title: "SIZE", Right: true})
	for _, s := range all {
		at, versions := when(s.Created, time.Now()), strconv.Itoa(len(s.Versions))
		if s.Created.IsZero() {
			at = "damaged"
		} else if s.Damaged > 0 {
			versions += fmt.Sprintf(" (%d damaged)", s.Damaged)
		}
		table.Add(s.Name, s.Runtime, at, strconv.Itoa(s.VariableCount), versions, progress.Bytes(s.SizeBytes))
	}
	return table.Print(std.Out)
}
