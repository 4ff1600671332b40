package nb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/cells"
	"colabrelay/relay/checkpoint"
	"colabrelay/relay/cli"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

func cellsCommand(c notebookCommand) *cobra.Command {
	return c.command(&cobra.Command{
		Use:   "cells FILE [ID]",
		Short: "List the cells of a notebook, or print the source of one",
		Long: "List the cells of a notebook with their ids, or print the source of one. It contacts no VM.\n" +
			"The state says what this computer knows: a cell is clean if it succeeded with its present source in the kernel that was used last, otherwise it is dirty, failed, running or never run. Cells that were run elsewhere count as never run.",
		Example: "  colab-relay nb cells analysis.ipynb\n  colab-relay nb cells analysis.ipynb 3\n  colab-relay nb cells --json analysis.ipynb",
		RunE:    func(cmd *cobra.Command, args []string) error { return c.cells(cmd.Context(), args[0], args[1:]) },
	}, 1, 2, completeCells)
}

// cells lists the cells of a notebook, or prints the one that is named.
func (c *notebookCommand) cells(ctx context.Context, path string, name []string) error {
	file, d, err := c.open(notebook.OpenFile, path)
	if err != nil {
		return err
	}
	var which cells.ListArgs
	if len(name) > 0 {
		cell, err := findCell(d, name[0])
		if err != nil {
			return err
		}
		which.Cell = cell.Handle
	}
	got, err := cells.List(ctx, file, which, nil)
	switch {
	case err != nil:
		return err
	case c.json && which.Cell != "":
		return cli.PrintJSON(c.std.Out, got.Cells[0])
	case c.json:
		return cli.PrintJSON(c.std.Out, got)
	case which.Cell != "":
		return printSource(c.std.Out, got.Cells[0].Source)
	}
	note(c.std.Err, got.Notes)
	if len(got.Cells) == 0 {
		fmt.Fprintln(c.std.Err, "the notebook has no cells; `colab-relay nb add FILE -c CODE` adds one")
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "INDEX", Right: true}, terminal.Column{Title: "ID"}, terminal.Column{Title: "TYPE"}, terminal.Column{Title: "STATE"}, terminal.Column{Title: "CELL"})
	for _, cell := range got.Cells {
		table.Add(strconv.Itoa(cell.Index), cell.ID, cell.Type, strings.ReplaceAll(cell.State, "_", " "), cell.Headline)
	}
	return table.Print(c.std.Out)
}

// printSource prints a source: to a file or pipe unchanged, to a terminal without what the terminal
// would obey.
func printSource(out io.Writer, source string) error {
	if terminal.Is(out) {
		source = plain.Document(source)
	}
	if source != "" && !strings.HasSuffix(source, "\n") {
		source += "\n"
	}
	_, err := io.WriteString(out, source)
	return err
}

func reportCommand(c notebookCommand) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "report FILE",
		Short:   "Show how the last run of a notebook went",
		Long:    "Show what happened to each cell in the last run of a notebook: attempts, durations, errors, and why cells were skipped. It contacts no VM.",
		Example: "  colab-relay nb report analysis.ipynb\n  colab-relay nb report --json analysis.ipynb",
		RunE: func(_ *cobra.Command, args []string) error {
			return c.report(args[0])
		},
	}
	c.set.AddFlags(cmd.Flags(), "CHECKPOINT_DIR")
	return c.command(cmd, 1, 1, completeNotebooks)
}

func (c *notebookCommand) report(path string) error {
	file, _, err := c.open(notebook.OpenFile, path)
	if err != nil {
		return err
	}
	record, err := nbrun.Load(file.Records, file.Path())
	if errors.Is(err, checkpoint.ErrNotFound) || err == nil && record.Run.ID == "" {
		return fmt.Errorf("the notebook %s was not run as a whole from this computer yet: `colab-relay nb run FILE` runs it", plain.Line(path))
	}
	if err != nil {
		return err
	}
	if c.json {
		return cli.PrintJSON(c.std.Out, newReport(record))
	}
	return printCellsOf(&record.Run, c.std)
}

// report is what happened in the last run of a notebook, as JSON.
type report struct {
	Notebook   string                   `json:"notebook"`
	OutputPath string                   `json:"output_path"` // the file that has the outputs
	Runtime    string                   `json:"runtime"`
	RunID      string                   `json:"run_id"`
	Status     nbrun.Status             `json:"status"`
	Success    bool                     `json:"success"` // the run is finished, and nothing failed or was skipped
	Counts     map[nbrun.CellStatus]int `json:"counts"`
	StartedAt  time.Time                `json:"started_at"`
	FinishedAt *time.Time               `json:"finished_at"`
	Seconds    float64                  `json:"seconds"` // of the last executions, without the time between them
	Cells      []nbrun.CellRecord       `json:"cells"`
	Notes      []string                 `json:"notes"`
}

func newReport(r *nbrun.Record) report {
	run, outputs := &r.Run, cmp.Or(r.Run.Spec.OutputPath, r.Path)
	if run.Spec.Unsaved {
		outputs = ""
	}
	return report{
		Notebook: r.Path, OutputPath: outputs, Runtime: r.Runtime, RunID: run.ID, Status: run.Status,
		Success: run.Succeeded(), Counts: run.Counts(), StartedAt: run.StartedAt, FinishedAt: run.FinishedAt, Seconds: run.Seconds(),
		Cells: run.Plan, Notes: run.Notes,
	}
}

// printCellsOf prints a run's cells as a table.
func printCellsOf(run *nbrun.RunRecord, std terminal.Streams) error {
	printRun(std, run)
	if len(run.Plan) == 0 {
		return nil
	}
	fmt.Fprintln(std.Out)
	table := terminal.NewTable(terminal.Column{Title: "INDEX", Right: true}, terminal.Column{Title: "ID"}, terminal.Column{Title: "STATUS"},
		terminal.Column{Title: "ATTEMPTS", Right: true}, terminal.Column{Title: "SECONDS", Right: true}, terminal.Column{Title: "CELL"})
	for _, cell := range run.Plan {
		table.Add(strconv.Itoa(cell.Index), cell.Handle, nbrun.Words(cell.Status), strconv.Itoa(cell.Attempts), fmt.Sprintf("%.1f", cell.Seconds()), cell.Title)
	}
	return table.Print(std.Out)
}

// printRun prints how a run ended, and what is to be said of its cells.
func printRun(std terminal.Streams, run *nbrun.RunRecord) {
	fmt.Fprintln(std.Out, plain.Line(run.Summary()))
	for _, cell := range run.Plan {
		if problem := cell.Problem(); problem != "" {
			fmt.Fprintf(std.Out, "  %s\n", plain.Line(problem))
		}
	}
	for _, note := range run.Notes {
		fmt.Fprintf(std.Out, "  note: %s\n", plain.Line(note))
	}
}

// printPlan prints what a dry run found.
func printPlan(std terminal.Streams, o nbrun.Outcome) error {
	table := terminal.NewTable(terminal.Column{Title: "INDEX", Right: true}, terminal.Column{Title: "ID"}, terminal.Column{Title: "RUNS"}, terminal.Column{Title: "CELL"}, terminal.Column{Title: "WHY"})
	for _, cell := range o.Plan {
		runs := "yes"
		if !cell.Run {
			runs = "no"
		}
		table.Add(strconv.Itoa(cell.Index), cell.CellID, runs, cell.Title, cmp.Or(cell.Why, "-"))
	}
	if err := table.Print(std.Out); err != nil {
		return err
	}
	note(std.Err, o.Notes)
	return nil
}
