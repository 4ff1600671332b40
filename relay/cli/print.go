package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
)

// PrintJSON writes v as one JSON document. It writes invisible characters as escapes: they
// may come from a VM, and a terminal or an editor may obey them.
func PrintJSON(out io.Writer, v any) error {
	text, err := plain.JSON(v, "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %v", err)
	}
	_, err = out.Write(text)
	return err
}

// Fitted breaks the lines of text that are too long for the terminal out.
func Fitted(out io.Writer, text string) string {
	if !terminal.Is(out) {
		return text
	}
	return wrap(text, terminal.Width(out))
}

// wrap breaks the lines of text at spaces so that none is longer than width. It continues
// an indented line below its last column, which two spaces separate from the others.
func wrap(text string, width int) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		indent := ""
		if strings.HasPrefix(line, " ") {
			indent = strings.Repeat(" ", lastColumn(line))
		}
		for len([]rune(line)) > width {
			at := strings.LastIndex(string([]rune(line)[:width+1]), " ")
			if at <= len(indent) {
				break // a word that is longer than a line
			}
			lines = append(lines, strings.TrimRight(line[:at], " "))
			line = indent + line[at+1:]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// lastColumn returns where the last column of an indented line begins.
func lastColumn(line string) int {
	begins := len(line) - len(strings.TrimLeft(line, " "))
	if at := strings.LastIndex(line[begins:], "  "); at >= 0 {
		return begins + at + 2
	}
	return begins + 2
}

// spaced puts an empty line between the paragraphs of a text, which are lines that are
// not indented.
func spaced(text string) string {
	var b strings.Builder
	before := ""
	for line := range strings.SplitSeq(text, "\n") {
		if before != "" && line != "" && !strings.HasPrefix(before, " ") && !strings.HasPrefix(line, " ") {
			b.WriteString("\n")
		}
		b.WriteString(line + "\n")
		before = line
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// ProgressLine describes the progress of a transfer. During an outage it gives the reason
// instead of the speed.
func ProgressLine(meter *progress.Meter, failure error, now time.Time) string {
	p, at := meter.Last()
	switch {
	case failure == nil || now.Sub(at) <= terminal.QuietTime:
		return meter.Describe(now)
	case p.Total == 0:
		return fmt.Sprintf("waiting for the VM: %v", failure)
	}
	return fmt.Sprintf("%s, waiting for the VM: %v", progress.Share(p.Done, p.Total), failure)
}
