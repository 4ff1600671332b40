package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

func useCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "use [NAME]",
		Short: "Choose the default runtime, or show which one it is",
		Long: "Make the paired runtime NAME the default one, for the commands on this computer and for MCP servers that are running. Without NAME, show which runtime is the default one. `colab-relay use -` undoes the choice.\n" +
			"A command or tool uses the first of these that exists: the runtime that it names (--runtime), the one that COLAB_URL describes, the chosen one, the one named \"default\", the only one paired.",
		Example: "  colab-relay use gpu-lab\n  colab-relay use\n  colab-relay use -",
		Args:    arguments(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := pairing.OpenDefault()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				name := args[0]
				if name == "-" {
					name = ""
				} else if name == "" {
					return usagef("NAME is empty: `colab-relay runtimes` lists the names")
				}
				if err := store.Choose(name); err != nil {
					return err
				}
			}
			err = showDefault(set, store, std)
			if len(args) > 0 && (errors.Is(err, pairing.ErrNoAddress) || errors.Is(err, pairing.ErrAmbiguous) || errors.Is(err, pairing.ErrNotPaired)) {
				fmt.Fprintf(std.Err, "note: %v\n", err) // what was asked for is done
				return nil
			}
			return err
		},
		ValidArgsFunction: firstArgument(completeRuntimes),
	}
}

// showDefault prints which runtime a call uses that names none, and why.
func showDefault(set *config.Settings, store *pairing.Store, std terminal.Streams) error {
	r, err := pairing.Resolve("", set.Get, store)
	if err != nil {
		return err
	}
	why := "it is the only one paired"
	switch {
	case r.Name == pairing.EnvName:
		why = "COLAB_URL is set, which comes before `colab-relay use`"
	case r.Chosen:
		why = "chosen with `colab-relay use`"
	case r.Name == pairing.DefaultName:
		why = "because of its name"
	}
	_, err = fmt.Fprintf(std.Out, "The default runtime is %q, %s (%s).\n", r.Name, plain.Line(r.URL), why)
	return err
}
