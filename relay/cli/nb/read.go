package nb

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

func cellsCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &notebookCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "cells FILE [ID]",
		Short: "List the cells of a notebook, or print the source of one",
		Long: "List the cells of a notebook with their ids, or print the source of one. It contacts no VM.\n" +
			"The state says what this computer knows: a cell is clean if it succeeded with its present source in the kernel that was used last, otherwise it is dirty, failed, running or never run. Cells that were run elsewhere count as never run.",
		Example:           "  colab-relay nb cells analysis.ipynb\n  colab-relay nb cells analysis.ipynb 3\n  colab-relay nb cells --json analysis.ipynb",
		Args:              cli.Arguments(1, 2),
		ValidArgsFunction: completeCells,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return c.printCell(args[0], args[1])
			}
			return c.listCells(args[0])
		},
	}
	cli.AddJSONFlag(cmd, &c.json)
	return cmd
}

// listedCell is a cell in a list, with the names of get_cells' answer.
type listedCell struct {
	Index          int              `json:"index"`
	ID             string           `json:"id"`
	Type           string           `json:"cell_type"`
	Source         string           `json:"source"`
	Title          string           `json:"title,omitempty"`
	Params         []notebook.Param `json:"params,omitempty"`
	Tags           []string         `json:"tags,omitempty"`
	State          string           `json:"state,omitempty"` // of a code cell
	ExecutionCount int              `json:"execution_count,omitempty"`
}

func (c *notebookCommand) listCells(path string) error {
	file, d, err := c.open(path)
	if err != nil {
		return err
	}
	record, err := c.record(file)
	if err != nil {
		return err
	}
	cells := []listedCell{}
	states := c.states(d, record)
	for i := range d.Len() {
		cells = append(cells, describeCell(d.Cell(i), states[i]))
	}
	if c.json {
		return cli.PrintJSON(c.std.Out, struct {
			Path     string       `json:"path"`
			Format   string       `json:"nbformat"`
			Language string       `json:"language"`
			Digest   string       `json:"digest"`
			Cells    []listedCell `json:"cells"`
		}{file.Path(), fmt.Sprintf("4.%d", d.Minor()), d.Language(), d.Digest(), cells})
	}
	if len(cells) == 0 {
		fmt.Fprintf(c.std.Err, "the notebook has no cells; `colab-relay nb add %s -c CODE` adds one\n", pasted(path))
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "INDEX", Right: true}, terminal.Column{Title: "ID"}, terminal.Column{Title: "TYPE"}, terminal.Column{Title: "STATE"}, terminal.Column{Title: "CELL"})
	for i, cell := range cells {
		table.Add(strconv.Itoa(cell.Index), cell.ID, cell.Type, strings.ReplaceAll(cell.State, "_", " "), headline(d.Cell(i)))
	}
	return table.Print(c.std.Out)
}

// record returns what this computer knows of the runs of a notebook, nil for none.
func (c *notebookCommand) record(file *notebook.File) (*nbrun.Record, error) {
	record, err := nbrun.Load(c.cfg.CheckpointDir, file.Path())
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil, nil
	}
	return record, err
}

// states returns the state of each cell by a record, which may be nil, and by the kernel that
// this computer saw last.
func (c *notebookCommand) states(d *notebook.Document, record *nbrun.Record) []nbrun.State {
	states := make([]nbrun.State, d.Len())
	if record != nil {
		if c.cfg.Pairings != nil {
			seen := c.cfg.Pairings.LastSeen(record.Runtime)
			record.Meet(seen.KernelID, seen.Since)
		}
		states = record.States(d)
	}
	for i := range states {
		if d.Cell(i).Type == notebook.Code {
			states[i] = cmp.Or(states[i], nbrun.NeverRun)
		}
	}
	return states
}

// describeCell returns a cell with its state.
func describeCell(cell notebook.Cell, state nbrun.State) listedCell {
	return listedCell{
		Index: cell.Index, ID: cell.Handle, Type: string(cell.Type), Source: cell.Source, Title: cell.Title,
		Params: cell.Params, Tags: cell.Tags, ExecutionCount: cell.ExecutionCount, State: string(state),
	}
}

// printCell prints the source of a cell: to a file or pipe unchanged, to a terminal without
// what the terminal would obey.
func (c *notebookCommand) printCell(path, id string) error {
	file, d, err := c.open(path)
	if err != nil {
		return err
	}
	at, err := findCell(d, id, path)
	if err != nil {
		return err
	}
	cell := d.Cell(at)
	if c.json {
		record, err := c.record(file)
		if err != nil {
			return err
		}
		return cli.PrintJSON(c.std.Out, describeCell(cell, c.states(d, record)[at]))
	}
	text := cell.Source
	if terminal.Is(c.std.Out) {
		text = plain.Document(text)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err = io.WriteString(c.std.Out, text)
	return err
}

func reportCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &notebookCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:               "report FILE",
		Short:             "Show how the last run of a notebook went",
		Long:              "Show what happened to each cell in the last run of a notebook: attempts, durations, errors, and why cells were skipped. It contacts no VM.",
		Example:           "  colab-relay nb report analysis.ipynb\n  colab-relay nb report --json analysis.ipynb",
		Args:              cli.Arguments(1, 1),
		ValidArgsFunction: completeNotebooks,
		RunE: func(_ *cobra.Command, args []string) error {
			return c.report(args[0])
		},
	}
	set.AddFlags(cmd.Flags(), "CHECKPOINT_DIR")
	cli.AddJSONFlag(cmd, &c.json)
	return cmd
}

func (c *notebookCommand) report(path string) error {
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
	var warnings []string
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
	for _, note := range o.Notes {
		warnings = append(warnings, "note: "+note)
	}
	for _, line := range warnings {
		fmt.Fprintln(std.Err, plain.Line(line))
	}
	return nil
}
