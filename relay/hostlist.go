package main

import (
	"fmt"
	"text/tabwriter"

	"colabrelay/relay/hostconfig"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

// listHosts prints the supported hosts and which program each starts as the relay.
func listHosts(user hostconfig.User, asJSON bool, std terminal.Streams) error {
	states := hostconfig.States(user)
	if asJSON {
		return printJSON(std.Out, struct {
			Hosts []hostconfig.State `json:"hosts"`
		}{states})
	}
	table := tabwriter.NewWriter(std.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HOST\tNAME\tSTATE")
	for _, s := range states {
		before := ""
		for _, f := range s.Files {
			if text := plain.Line(stateText(s, f)); text != before {
				fmt.Fprintf(table, "%s\t%s\t%s\n", s.Host, s.Title, text)
				before = text
			}
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(std.Out, "Run `colab-relay install HOST` to add the relay.")
	return err
}

func stateText(s hostconfig.State, f hostconfig.FileState) string {
	switch {
	case f.Problem != "":
		return f.Problem
	case f.Installed:
		return "starts " + f.Command
	case !s.Found:
		return "not found on this computer"
	case len(s.Files) > 1:
		return "found, without the relay in " + f.Path
	}
	return "found, without the relay"
}
