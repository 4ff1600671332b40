package nbrun

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/natefinch/atomic"

	"colabrelay/relay/plain"
)

// Bounds of what is said of a cell.
const (
	maxReportValue = 300 // characters of an exception's message
	maxReportNames = 10  // of a cause of a skipped cell
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
		report.Seconds += run.Plan[i].Seconds()
		report.Retries += run.Plan[i].Retries
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

// Seconds returns how long the attempts at a cell took in all.
func (c *CellRecord) Seconds() (total float64) {
	for i := range c.Attempts {
		total += c.Attempts[i].Seconds
	}
	return total
}

// JSON returns the report as an indented document. Invisible characters are escapes.
func (r Report) JSON() ([]byte, error) { return plain.JSON(r, "  ") }

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
	text := fmt.Sprintf("%s: %s; %s in %s", r.Status.Words(), plain.Count(len(r.Cells), "cell"), cmp.Or(strings.Join(counts, ", "), "none ran"), seconds(r.Seconds))
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
		return fmt.Sprintf("%s: it uses %s, which the cell with id %s would have made", head, strings.Join(because.Names[:min(len(because.Names), maxReportNames)], ", "), because.Cell)
	case c.Why != "":
		return head + ": " + c.Why
	case c.Status == CellTimedOut && c.Last() != nil: // its exception is only the interrupt
		return head + " after " + seconds(c.Last().Seconds)
	case c.Status.failed() && c.Failure() != nil:
		return head + ": " + c.Failure().text()
	case c.Status.failed() || c.Status == CellSkipped:
		return head
	}
	return ""
}

// Failure is why the last attempt did not succeed; nil for no reason.
func (c *CellRecord) Failure() *Failure {
	if at := c.Last(); at != nil {
		return at.Error
	}
	return nil
}

// text returns the exception, or else the executor's explanation.
func (f *Failure) text() string {
	text := cmp.Or(f.Reason, f.EValue)
	if f.EName != "" {
		text = strings.TrimSuffix(f.EName+": "+f.EValue, ": ")
	}
	return clip(plain.Line(text), maxReportValue)
}

// Markdown returns the report as GitHub shows it; it is readable in a terminal too. Texts of the
// notebook and the kernel have no markup there.
func (r Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Run of %s\n\n%s.\n", escape(filepath.Base(r.Notebook)), escape(r.Summary()))
	const when = "2006-01-02 15:04:05 UTC"
	fmt.Fprintf(&b, "\n- started: %s\n", r.StartedAt.UTC().Format(when))
	if r.FinishedAt != nil {
		fmt.Fprintf(&b, "- finished: %s\n", r.FinishedAt.UTC().Format(when))
	}
	if r.OutputPath != "" && r.OutputPath != r.Notebook {
		fmt.Fprintf(&b, "- outputs: %s\n", escape(r.OutputPath))
	}
	if r.Runtime != "" {
		fmt.Fprintf(&b, "- runtime: %s\n", escape(r.Runtime))
	}
	if len(r.Cells) > 0 {
		b.WriteString("\n| cell | id | title | status | attempts | seconds |\n|---:|---|---|---|---:|---:|\n")
	}
	var problems []string
	for _, c := range r.Cells {
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %d | %.1f |\n", c.Index, escape(c.Handle), escape(c.Title), escape(c.Status.Words()), len(c.Attempts), c.Seconds())
		if problem := c.Problem(); problem != "" {
			problems = append(problems, problem)
		}
	}
	list(&b, "Cells that did not succeed", problems)
	list(&b, "Notes", r.Notes)
	return b.String()
}

// list writes a section with an item for each text.
func list(b *strings.Builder, title string, texts []string) {
	if len(texts) > 0 {
		fmt.Fprintf(b, "\n## %s\n\n", title)
	}
	for _, text := range texts {
		fmt.Fprintf(b, "- %s\n", escape(text))
	}
}

// Words returns the status as a person reads it.
func (s Status) Words() string { return words(s) }

// Words returns the status as a person reads it.
func (s CellStatus) Words() string { return words(s) }

func words[S ~string](status S) string { return strings.ReplaceAll(string(status), "_", " ") }

// seconds returns a duration as a person reads it.
func seconds(s float64) string {
	if s < 60 {
		return fmt.Sprintf("%.1f s", s)
	}
	return (time.Duration(s) * time.Second).String()
}

// escape returns text on one line, without markup in Markdown. An underscore within a word is
// none.
func escape(text string) string {
	var b strings.Builder
	runes := []rune(plain.Line(text))
	inWord := func(i int) bool {
		return i >= 0 && i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i]))
	}
	for i, r := range runes {
		if strings.ContainsRune("\\`*[]<>|~&$#", r) || r == '_' && !(inWord(i-1) && inWord(i+1)) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// writeReport writes the report of the record's run as JSON and as Markdown beside the record's
// file. Only the owner can read them.
func (r *Run) writeReport() error {
	report := r.record.Report()
	text, err := report.JSON()
	if err != nil {
		return fmt.Errorf("write the report of the run: %v", err)
	}
	for kind, text := range map[string][]byte{".report.json": text, ".report.md": []byte(report.Markdown())} {
		path := r.beside(kind)
		if err := atomic.WriteFile(path, bytes.NewReader(text)); err != nil {
			return fmt.Errorf("write the report of the run: %w", err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
	}
	r.reports = r.beside(".report.md")
	return nil
}
