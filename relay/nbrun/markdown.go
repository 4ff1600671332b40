package nbrun

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"colabrelay/relay/plain"
)

// Bounds of the Markdown, in characters.
const (
	maxReportValue = 300 // of an exception's message
	maxReportNames = 10  // of the causes of a skipped cell
)

// Markdown returns the report as GitHub shows it; it is readable in a terminal too. Texts of the
// notebook and the kernel have no markup there.
func (r Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Run of %s\n\n%s\n", code(filepath.Base(r.Notebook)), r.summary())
	if len(r.Cells) > 0 {
		b.WriteString("\n| cell | id | title | status | attempts | seconds |\n|---:|---|---|---|---:|---:|\n")
	}
	for _, c := range r.Cells {
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %d | %.1f |\n", c.Index, inTable(code(c.Handle)), escape(c.Title), c.Status.Words(), len(c.Attempts), c.Seconds())
	}
	for _, c := range r.Cells {
		writeDetails(&b, c)
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n## Notes\n\n")
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", escape(note))
	}
	return b.String()
}

// summary says in a few lines how the run ended and where its outputs are.
func (r Report) summary() string {
	lines := []string{fmt.Sprintf("**%s**: %s.", escape(r.Status.Words()), r.counts())}
	lines = append(lines, "Started: "+when(r.StartedAt)+".")
	if r.FinishedAt != nil {
		lines[1] = fmt.Sprintf("Started: %s; finished: %s.", when(r.StartedAt), when(*r.FinishedAt))
	}
	if r.OutputPath != "" && r.OutputPath != r.Notebook {
		lines = append(lines, "Outputs: "+code(r.OutputPath)+".")
	}
	if r.Runtime != "" {
		lines = append(lines, "Runtime: "+code(r.Runtime)+".")
	}
	return strings.Join(lines, "\n\n")
}

// Summary says in one line how the run ended.
func (r Report) Summary() string { return r.Status.Words() + ": " + r.counts() }

// counts says how many cells ended how, and how long they took.
func (r Report) counts() string {
	var counts []string
	for _, status := range reportOrder {
		if n := r.Counts[status]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, status.Words()))
		}
	}
	text := fmt.Sprintf("%s; %s in %s", plain.Count(len(r.Cells), "cell"), cmp.Or(strings.Join(counts, ", "), "none ran"), seconds(r.Seconds))
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
	head := fmt.Sprintf("cell %d (%s) %s", c.Index, c.Handle, c.Status.Words())
	switch {
	case c.Status == CellSkipped && len(c.SkippedBecause) > 0:
		because := c.SkippedBecause[0]
		if len(because.Names) == 0 {
			return fmt.Sprintf("%s: it may use what cell %s would have made", head, because.Cell)
		}
		return fmt.Sprintf("%s: it uses %s, which cell %s would have made", head, strings.Join(because.Names[:min(len(because.Names), maxReportNames)], ", "), because.Cell)
	case c.Why != "":
		return head + ": " + c.Why
	case c.Status == CellTimedOut && len(c.Attempts) > 0: // its exception is only the interrupt
		return head + " after " + seconds(c.Attempts[len(c.Attempts)-1].Seconds)
	case slices.Contains(unsuccessful, c.Status) && c.Failure() != nil:
		return head + ": " + c.Failure().text()
	case slices.Contains(unsuccessful, c.Status):
		return head
	}
	return ""
}

// Failure is why the last attempt did not succeed; nil for no reason.
func (c *CellRecord) Failure() *Failure {
	if n := len(c.Attempts); n > 0 {
		return c.Attempts[n-1].Error
	}
	return nil
}

// text returns the exception, or else the executor's explanation.
func (f *Failure) text() string {
	if f.EName == "" {
		return cut(cmp.Or(f.Reason, f.EValue))
	}
	return cut(strings.TrimSuffix(f.EName+": "+f.EValue, ": "))
}

// reportOrder is the order in which a summary counts the statuses.
var reportOrder = []CellStatus{
	CellSucceeded, CellExpectedFailure, CellFailed, CellTimedOut, CellInterrupted, CellKernelDied, CellLost, CellSkipped, CellRunning, CellQueued, CellNotRun,
}

// writeDetails says of a cell what the table does not: why it did not run, and its failures.
func writeDetails(b *strings.Builder, c CellRecord) {
	failed := slices.ContainsFunc(c.Attempts, func(a Attempt) bool { return a.Error != nil })
	if !failed && len(c.SkippedBecause) == 0 && c.Why == "" {
		return
	}
	fmt.Fprintf(b, "\n## Cell %d: %s\n\n%s %s\n", c.Index, c.Status.Words(), code(c.Handle), escape(c.Title))
	if c.Why != "" {
		fmt.Fprintf(b, "\n- %s\n", escape(c.Why))
	} else {
		b.WriteString("\n")
	}
	for i, because := range c.SkippedBecause {
		if i == maxReportNames {
			fmt.Fprintf(b, "- and %s\n", plain.Count(len(c.SkippedBecause)-i, "more cause"))
			break
		}
		fmt.Fprintf(b, "- skipped because of cell %s: %s\n", code(because.Cell), because.uses())
	}
	for i, attempt := range c.Attempts {
		fmt.Fprintf(b, "- attempt %d: %s after %s%s\n", i+1, escape(words(attempt.Status)), seconds(attempt.Seconds), attempt.Error.markdown())
	}
}

// uses says what a skipped cell lacks.
func (w Because) uses() string {
	if len(w.Names) == 0 {
		return "what it uses cannot be determined"
	}
	var names []string
	for _, name := range w.Names[:min(len(w.Names), maxReportNames)] {
		names = append(names, code(name))
	}
	if more := len(w.Names) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return "it uses " + strings.Join(names, ", ")
}

// markdown returns the failure, with a colon before it.
func (f *Failure) markdown() string {
	switch {
	case f == nil || *f == Failure{}:
		return ""
	case f.EName == "":
		return ": " + escape(f.text())
	}
	return ": " + code(f.text())
}

// cut bounds a message.
func cut(text string) string {
	runes := []rune(plain.Line(text))
	if len(runes) <= maxReportValue {
		return string(runes)
	}
	return string(runes[:maxReportValue-1]) + "…"
}

// Words returns the status as a person reads it.
func (s Status) Words() string { return words(s) }

// Words returns the status as a person reads it.
func (s CellStatus) Words() string { return words(s) }

func words[S ~string](status S) string {
	return cmp.Or(strings.ReplaceAll(string(status), "_", " "), "not ended")
}

// seconds returns a duration as a person reads it.
func seconds(s float64) string {
	if s < 60 {
		return fmt.Sprintf("%.1f s", s)
	}
	return (time.Duration(s) * time.Second).String()
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// escape returns text on one line, without markup in Markdown. An underscore within a word is
// none.
func escape(text string) string {
	var b strings.Builder
	runes := []rune(plain.Line(text))
	inWord := func(i int) bool {
		return i >= 0 && i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i]))
	}
	for i, r := range runes {
		if strings.ContainsRune("\\`*[]<>|~&$", r) || r == '_' && !(inWord(i-1) && inWord(i+1)) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// code returns text on one line as code. Its fence is longer than any run of backticks in it.
func code(text string) string {
	text = plain.Line(text)
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if text == "" || strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") || strings.TrimSpace(text) == "" {
		text = " " + text + " "
	}
	return fence + text + fence
}

// inTable keeps a bar in code from ending the column.
func inTable(code string) string { return strings.ReplaceAll(code, "|", `\|`) }
