package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

func runtimesCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "runtimes",
		Short: "List the paired runtimes",
		Long:  "List the paired runtimes without contacting them; `colab-relay status` does that. The key id identifies a secret without revealing it.",
		Args:  arguments(0, 0),
		RunE:  func(*cobra.Command, []string) error { return listRuntimes(*set, std) },
	}
}

// listRuntimes prints the paired runtimes. The key id distinguishes secrets without
// revealing them; an executor prints its own.
func listRuntimes(set config.Settings, std terminal.Streams) error {
	store, err := pairing.OpenDefault()
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	inUse, unclear := pairing.Resolve("", set.Get, store)
	if len(all) == 0 && unclear != nil {
		return unclear
	}
	if inUse.Name == pairing.EnvName {
		all = append(all, inUse)
	}
	table := tabwriter.NewWriter(std.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tURL\tKEY ID\tIN USE")
	for _, r := range all {
		mark := ""
		if r.Name == inUse.Name {
			mark = "yes"
		}
		address := cmp.Or(plain.Line(r.URL), pairing.ErrNoAddress.Error())
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Name, address, r.Secret.KeyID(), mark)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if unclear != nil {
		fmt.Fprintf(std.Err, "note: %s\n", plain.Line(unclear.Error()))
	}
	return nil
}
