package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/config"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

func nbReportCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c, markdown := &nbFile{set: set, std: std}, false
	cmd := &cobra.Command{
		Use:               "report FILE",
		Short:             "Show how the last run of a notebook went",
		Long:              "Show what happened to each cell in the last run of a notebook: attempts, durations, errors, and why cells were skipped. It contacts no VM.",
		Example:           "  colab-relay nb report analysis.ipynb\n  colab-relay nb report --markdown analysis.ipynb > report.md\n  colab-relay nb report --json analysis.ipynb",
		Args:              arguments(1, 1),
		ValidArgsFunction: completeNotebooks,
		RunE: func(_ *cobra.Command, args []string) error {
			if c.json && markdown {
				return usagef("give either --json or --markdown, not both")
			}
			return c.report(args[0], markdown)
		},
	}
	set.AddFlags(cmd.Flags(), "CHECKPOINT_DIR")
	addJSONFlag(cmd, &c.json)
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print it as Markdown")
	return cmd
}

func (c *nbFile) report(path string, markdown bool) error {
	file, _, err := c.open(path)
	if err != nil {
		return err
	}
	record, err := nbrun.Load(c.cfg.CheckpointDir, file.Path())
	if errors.Is(err, checkpoint.ErrNotFound) || err == nil && record.Run.ID == "" {
		return fmt.Errorf("the notebook %s was not run as a whole from this computer yet: `colab-relay nb run %s` runs it", plain.Line(path), pasted(path))
	}
	if err != nil {
		return err
	}
	report := record.Report()
	switch {
	case c.json:
		return printJSON(c.std.Out, report)
	case markdown:
		_, err = io.WriteString(c.std.Out, report.Markdown())
		return err
	}
	return printCellsOf(report, c.std)
}

// printCellsOf prints a report as a table.
func printCellsOf(report nbrun.Report, std terminal.Streams) error {
	printReport(std, report)
	if len(report.Cells) == 0 {
		return nil
	}
	fmt.Fprintln(std.Out)
	table := terminal.NewTable(terminal.Column{Title: "INDEX", Right: true}, terminal.Column{Title: "ID"}, terminal.Column{Title: "STATUS"},
		terminal.Column{Title: "ATTEMPTS", Right: true}, terminal.Column{Title: "SECONDS", Right: true}, terminal.Column{Title: "CELL"})
	for _, cell := range report.Cells {
		table.Add(strconv.Itoa(cell.Index), cell.Handle, cell.Status.Words(), strconv.Itoa(len(cell.Attempts)), fmt.Sprintf("%.1f", cell.Seconds()), cell.Title)
	}
	return table.Print(std.Out)
}
