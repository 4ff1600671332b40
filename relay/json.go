package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"colabrelay/relay/plain"
)

// addJSONFlag adds --json to a command that prints data.
func addJSONFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "json", false, "print one JSON document")
}

// printJSON writes v as one JSON document. It writes invisible characters as escapes: they
// may come from a VM, and a terminal or an editor may obey them.
func printJSON(out io.Writer, v any) error {
	text, err := plain.JSON(v, "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %v", err)
	}
	_, err = out.Write(text)
	return err
}
