package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
)

func runtimesCommand(set *settings, std streams) *cobra.Command {
	return &cobra.Command{
		Use: "runtimes", Short: "List the paired runtimes", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return list(*set, std) },
	}
}

// list prints what is paired and asks nobody; `relay status` asks. The key id tells
// secrets apart and is no secret: executors print theirs.
func list(set settings, std streams) error {
	store, err := openPairings()
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	meant, unclear := pairing.Resolve("", set.get, store)
	if len(all) == 0 && unclear != nil {
		return unclear
	}
	if meant.Name == pairing.EnvName {
		all = append(all, meant)
	}
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tURL\tKEY_ID\t")
	for _, r := range all {
		mark := ""
		if r.Name == meant.Name {
			mark = "default"
		}
		address := cmp.Or(plain.Line(r.URL), pairing.ErrNoAddress.Error())
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Name, address, r.Secret.KeyID(), mark)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if unclear != nil {
		fmt.Fprintf(std.err, "note: no runtime is the default one: %s\n", plain.Line(unclear.Error()))
	}
	return nil
}

func unpairCommand(std streams) *cobra.Command {
	return &cobra.Command{
		Use: "unpair NAME", Short: "Forget a paired runtime", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := openPairings()
			if err != nil {
				return err
			}
			if err := store.Remove(args[0]); err != nil {
				return err
			}
			fmt.Fprintf(std.out, "Forgot %q. A relay that runs does so from its next call on.\n", args[0])
			return nil
		},
	}
}
