package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"colabrelay/relay/nbrun"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// notebookView is what a person sees of the run of a notebook.
type notebookView struct {
	std     terminal.Streams
	cells   *remoterun.Cells
	outputs bool            // print what the cells print
	quiet   bool            // show no progress
	status  terminal.Status // on stderr
	at      int             // index of the cell in the last line of progress
}

func newNotebookView(std terminal.Streams, cells *remoterun.Cells) *notebookView {
	return &notebookView{std: std, cells: cells, status: terminal.Status{Out: std.Err}, at: -1}
}

// progress shows how far the run is: on a terminal in one line, unless that has the outputs, and
// elsewhere in a line for each cell.
func (v *notebookView) progress(p nbrun.Progress) {
	line := fmt.Sprintf("%d of %d cells done; cell %d: %s", p.Done, p.Total, p.Index, p.Title)
	switch {
	case v.quiet:
	case terminal.Is(v.std.Err) && !v.outputs:
		if p.LastLine != "" {
			line += " | " + p.LastLine
		}
		v.status.Show(line)
	case p.Index != v.at:
		v.at = p.Index
		v.note("%s", plain.Line(line))
	}
}

// output prints what a cell printed, or else only that it raised an exception.
func (v *notebookView) output(ctx context.Context, cell nbrun.CellRecord, executionID string, events []contract.Event) {
	if v.outputs {
		v.cells.Print(ctx, executionID, kernelOf(cell), events)
		return
	}
	for _, ev := range events {
		if ev.Type == contract.EventError {
			v.note("cell %d raised %s", cell.Index, plain.Line(fmt.Sprintf("%.100s: %.200s", ev.EName, ev.EValue)))
		}
	}
}

// kernelOf is the kernel of a cell's last attempt.
func kernelOf(cell nbrun.CellRecord) string {
	if n := len(cell.Attempts); n > 0 {
		return cell.Attempts[n-1].KernelID
	}
	return ""
}

// note prints a message of this program's own.
func (v *notebookView) note(format string, args ...any) {
	v.status.Clear()
	v.cells.Note(format, args...)
}

// printReport prints how a run ended, and what is to be said of its cells.
func printReport(std terminal.Streams, report nbrun.Report) {
	fmt.Fprintln(std.Out, plain.Line(report.Summary()))
	for _, cell := range report.Cells {
		if problem := cell.Problem(); problem != "" {
			fmt.Fprintf(std.Out, "  %s\n", plain.Line(problem))
		}
	}
	for _, note := range report.Notes {
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
		for _, warning := range cell.Warnings {
			warnings = append(warnings, fmt.Sprintf("warning: cell %d: %s", cell.Index, warning))
		}
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
