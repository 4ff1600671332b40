package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/terminal"
)

func versionCommand(std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the relay's version", Args: arguments(0, 0),
		Run: func(*cobra.Command, []string) { fmt.Fprintln(std.Out, version) },
	}
}
