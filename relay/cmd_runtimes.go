package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

func runtimesCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "runtimes",
		Short:   "List the paired runtimes",
		Long:    "List the paired runtimes without contacting them; `colab-relay status` does that. The key id identifies a secret without revealing it; an executor prints its own.",
		Example: "  colab-relay runtimes\n  colab-relay runtimes --json",
		Args:    arguments(0, 0),
		RunE:    func(*cobra.Command, []string) error { return listRuntimes(set, asJSON, std) },
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// listedRuntime is a paired runtime in a list.
type listedRuntime struct {
	Runtime string `json:"runtime"`
	URL     string `json:"colab_url"` // empty before it is known
	KeyID   string `json:"key_id"`
	Default bool   `json:"default"` // a call that names no runtime uses it
	Chosen  bool   `json:"chosen"`  // by `colab-relay use`
}

// listRuntimes prints the paired runtimes.
func listRuntimes(set *config.Settings, asJSON bool, std terminal.Streams) error {
	store, err := pairing.OpenDefault()
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	inUse, unclear := pairing.Resolve("", set.Get, store)
	if inUse.Name == pairing.EnvName {
		all = append(all, inUse)
	}
	listed := []listedRuntime{}
	for _, r := range all {
		listed = append(listed, listedRuntime{r.Name, r.URL, r.Secret.KeyID(), r.Name == inUse.Name, r.Chosen})
	}
	if asJSON {
		return printJSON(std.Out, struct {
			Runtimes []listedRuntime `json:"runtimes"`
		}{listed})
	}
	if len(all) == 0 && unclear != nil {
		return unclear
	}
	colours := terminal.ColoursFor(std.Out, set.Getenv)
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "URL"}, terminal.Column{Title: "KEY ID", Style: colours.Dim}, terminal.Column{Title: "DEFAULT", Style: colours.Good})
	for _, r := range listed {
		mark := ""
		if r.Default {
			mark = "yes"
		}
		table.Add(r.Runtime, cmp.Or(r.URL, pairing.ErrNoAddress.Error()), r.KeyID, mark)
	}
	if err := table.Print(std.Out); err != nil {
		return err
	}
	if unclear != nil {
		fmt.Fprintf(std.Err, "note: %s\n", plain.Line(unclear.Error()))
	}
	return nil
}
