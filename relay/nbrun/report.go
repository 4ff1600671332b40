package nbrun

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/natefinch/atomic"

	"colabrelay/relay/plain"
)

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
	Seconds    float64            `json:"seconds"` // of the executions, without the time between them
	Cells      []CellRecord       `json:"cells"`
	Notes      []string           `json:"notes"`
}

// unsuccessful are the statuses of cells that did not do what the notebook asks.
var unsuccessful = []CellStatus{CellFailed, CellTimedOut, CellInterrupted, CellKernelDied, CellLost, CellSkipped}

// Report returns the report of the record's run.
func (r *Record) Report() Report {
	run := r.Run
	report := Report{
		Notebook: r.Path, OutputPath: r.Work, Runtime: r.Runtime, RunID: run.ID, Status: run.Status,
		Counts: map[CellStatus]int{}, Retries: run.Retries, StartedAt: run.StartedAt, FinishedAt: run.FinishedAt,
		Cells: append([]CellRecord{}, run.Plan...), Notes: append([]string{}, run.Notes...),
	}
	for _, cell := range run.Plan {
		report.Counts[cell.Status]++
		report.Seconds += cell.Seconds()
	}
	report.Success = run.Status == StatusSucceeded
	for _, status := range unsuccessful {
		report.Success = report.Success && report.Counts[status] == 0
	}
	return report
}

// Seconds returns how long the attempts at a cell took in all.
func (c *CellRecord) Seconds() (total float64) {
	for _, attempt := range c.Attempts {
		total += attempt.Seconds
	}
	return total
}

// JSON returns the report as an indented document. Invisible characters are escapes.
func (r Report) JSON() ([]byte, error) { return plain.JSON(r, "  ") }

// reportPaths returns the files of the report of the record in a file.
func reportPaths(recordPath string) (asJSON, markdown string) {
	base := strings.TrimSuffix(recordPath, ".json") + ".report"
	return base + ".json", base + ".md"
}

// writeReport writes the report of the record's run as JSON and as Markdown beside the record's
// file, and returns the path of the Markdown. Only the owner can read them.
func writeReport(recordPath string, r *Record) (path string, err error) {
	report := r.Report()
	text, err := report.JSON()
	if err != nil {
		return "", fmt.Errorf("write the report of the run: %v", err)
	}
	asJSON, markdown := reportPaths(recordPath)
	if err := writePrivate(asJSON, text); err != nil {
		return "", err
	}
	return markdown, writePrivate(markdown, []byte(report.Markdown()))
}

// writePrivate replaces a file as a whole.
func writePrivate(path string, text []byte) error {
	if err := atomic.WriteFile(path, bytes.NewReader(text)); err != nil {
		return fmt.Errorf("write the report of the run: %w", err)
	}
	return os.Chmod(path, 0o600)
}
