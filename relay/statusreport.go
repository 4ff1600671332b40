package main

import (
	"fmt"
	"io"

	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

// print writes the report for a person.
func (s statusReport) print(out io.Writer, colours terminal.Colours) {
	fmt.Fprintf(out, "colab-relay %s\n", s.RelayVersion)
	for _, line := range [][2]string{{"downloads", s.SaveDir}, {"checkpoints", s.CheckpointDir}, {"longest wait", fmt.Sprintf("%gs", s.HoldSeconds)}} {
		fmt.Fprintf(out, "  %-12s  %s\n", line[0], plain.Line(line[1]))
	}
	for _, wrong := range s.WrongSettings {
		fmt.Fprintf(out, "%s %s\n", colours.Bad("wrong setting:"), wrong)
	}
	for _, r := range s.Runtimes {
		line := "\n" + r.Runtime
		if r.ColabURL != "" {
			line += "  " + plain.Line(r.ColabURL)
		}
		if r.Default {
			line += "  (default)"
		}
		fmt.Fprintln(out, line)
		r.connection.print(out, colours)
	}
}
