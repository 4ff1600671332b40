package nbrun

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
)

// maxReportValue bounds what is said of an exception, in characters.
const maxReportValue = 300

// Report is what happened in the last run of a notebook, for people and programs.
type Report struct {
	Notebook   string             `json:"notebook"`
	OutputPath string             `json:"output_path"` // the file that has the outputs
	Runtime    string             `json:"runtime"`
	RunID      string             `json:"run_id"`
	Status     Status             `json:"status"`
	Success    bool               `json:"success"` // the run is finished, and nothing failed or was skipped
	Counts     map[CellStatus]int `json:"counts"`
	Retries    int                `json:"retries"`
	StartedAt  time.Time          `json:"started_at"`
	FinishedAt *time.Time         `json:"finished_at"`
	Seconds    float64            `json:"seconds"` // of the last executions, without the time between them
	Cells      []CellRecord       `json:"cells"`
	Notes      []string           `json:"notes"`
}

// Report returns the report of the record's run.
func (r *Record) Report() Report {
	run := &r.Run
	report := Report{
		Notebook: r.Path, OutputPath: cmp.Or(run.Spec.OutputPath, r.Path), Runtime: r.Runtime, RunID: run.ID, Status: run.Status,
		Success: run.Status == StatusSucceeded && run.unsuccessful() == nil, Counts: run.counts(),
		StartedAt: run.StartedAt, FinishedAt: run.FinishedAt,
		Cells: append([]CellRecord{}, run.Plan...), Notes: append([]string{}, run.Notes...),
	}
	if run.Spec.Unsaved {
		report.OutputPath = ""
	}
	for i := range run.Plan {
		c := &run.Plan[i]
		report.Seconds += c.Seconds()
		report.Retries += max(0, c.Attempts-1)
	}
	return report
}

// counts returns how many cells of the run have which status.
func (r *RunRecord) counts() map[CellStatus]int {
	counts := map[CellStatus]int{}
	for i := range r.Plan {
		counts[r.Plan[i].Status]++
	}
	return counts
}

// Seconds returns how long the last attempt at a cell took.
func (c *CellRecord) Seconds() float64 {
	if c.Last == nil {
		return 0
	}
	return c.Last.Seconds
}

// Summary says in one line how the run ended: how many cells ended how, and how long they took.
func (r Report) Summary() string {
	var counts []string
	for _, status := range []CellStatus{
		CellSucceeded, CellExpectedFailure, CellFailed, CellTimedOut, CellInterrupted, CellKernelDied, CellLost, CellSkipped, CellRunning, CellNotRun,
	} {
		if n := r.Counts[status]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, status.Words()))
		}
	}
	text := fmt.Sprintf("%s: %s; %s in %s", r.Status.Words(), plain.Count(len(r.Cells), "cell"), cmp.Or(strings.Join(counts, ", "), "none ran"), took(r.Seconds))
	switch {
	case r.Retries == 1:
		text += ", 1 retry"
	case r.Retries > 1:
		text += fmt.Sprintf(", %d retries", r.Retries)
	}
	return text
}

// Problem says what a person should know of a cell that did not succeed, or did not run; empty
// for other cells. It is not sanitised.
func (c *CellRecord) Problem() string {
	head := fmt.Sprintf("cell %d (id %s) %s", c.Index, c.Handle, c.Status.Words())
	switch {
	case c.Status == CellSkipped && len(c.SkippedBecause) > 0:
		because := c.SkippedBecause[0]
		var names []string
		for _, name := range because.Names { // code in the kernel can report any text as one
			names = append(names, plain.Word(name))
		}
		return fmt.Sprintf("%s: it uses %s, which the cell with id %s would have made", head, strings.Join(names, ", "), because.Cell)
	case c.Why != "":
		return head + ": " + c.Why
	case c.Status == CellTimedOut: // its exception is only the interrupt
		return head + " after " + took(c.Seconds())
	case c.Status.Failed() && c.Failure() != nil:
		return head + ": " + c.Failure().text()
	case c.Status.Failed() || c.Status == CellSkipped:
		return head
	}
	return ""
}

// Failure is why the last attempt did not succeed; nil for no reason.
func (c *CellRecord) Failure() *Failure {
	if c.Last == nil {
		return nil
	}
	return c.Last.Error
}

// text returns the exception, or else the executor's explanation.
func (f *Failure) text() string {
	text := cmp.Or(f.Reason, f.EValue)
	if f.EName != "" {
		text = strings.TrimSuffix(f.EName+": "+f.EValue, ": ")
	}
	return plain.Clip(text, maxReportValue)
}

// Words returns the status as a person reads it.
func (s Status) Words() string { return words(s) }

// Words returns the status as a person reads it.
func (s CellStatus) Words() string { return words(s) }

func words[S ~string](status S) string { return strings.ReplaceAll(string(status), "_", " ") }

func took(seconds float64) string {
	return progress.Duration(time.Duration(seconds * float64(time.Second)))
}
