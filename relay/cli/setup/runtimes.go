package setup

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

// RuntimesCommand returns `colab-relay runtimes`.
func RuntimesCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "runtimes",
		Short:   "List the paired runtimes",
		Long:    "List the paired runtimes without contacting them; `colab-relay status` does that. The key id identifies a secret without revealing it; an executor prints its own.",
		Example: "  colab-relay runtimes\n  colab-relay runtimes --json",
		Args:    cli.Arguments(0, 0),
		RunE:    func(*cobra.Command, []string) error { return listRuntimes(set, asJSON, std) },
	}
	cli.AddJSONFlag(cmd, &asJSON)
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
		return cli.PrintJSON(std.Out, struct {
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

// UseCommand returns `colab-relay use`.
func UseCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "use [NAME]",
		Short: "Choose the default runtime, or show which one it is",
		Long: "Make the paired runtime NAME the default one, for the commands on this computer and for MCP servers that are running. Without NAME, show which runtime is the default one. `colab-relay use -` undoes the choice.\n" +
			"A command or tool uses the first of these that exists: the runtime that it names (--runtime), the one that COLAB_URL describes, the chosen one, the one named \"default\", the only one paired.",
		Example: "  colab-relay use gpu-lab\n  colab-relay use\n  colab-relay use -\n  colab-relay use --json | jq -r .runtime",
		Args:    cli.Arguments(0, 1),
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
					return cli.Usagef("NAME is empty: `colab-relay runtimes` lists the names")
				}
				if err := store.Choose(name); err != nil {
					return err
				}
			}
			err = showDefault(set, store, asJSON, std)
			if len(args) > 0 && (errors.Is(err, pairing.ErrNoAddress) || errors.Is(err, pairing.ErrAmbiguous) || errors.Is(err, pairing.ErrNotPaired)) {
				fmt.Fprintf(std.Err, "note: %v\n", err) // what was asked for is done
				if asJSON {
					return cli.PrintJSON(std.Out, defaultRuntime{})
				}
				return nil
			}
			return err
		},
		ValidArgsFunction: cli.FirstArgument(cli.CompleteRuntimes),
	}
	cli.AddJSONFlag(cmd, &asJSON)
	return cmd
}

// defaultRuntime is the JSON of use: the runtime that a call uses that names none. It is empty
// if there is none, or none with an address.
type defaultRuntime struct {
	Runtime  string `json:"runtime"`
	ColabURL string `json:"colab_url"`
	Reason   string `json:"reason"` // environment, chosen, name or only_one
}

// reasons say why a runtime is the default one, by defaultRuntime.Reason.
var reasons = map[string]string{
	"environment": "COLAB_URL is set, which comes before `colab-relay use`",
	"chosen":      "chosen with `colab-relay use`",
	"name":        "because of its name",
	"only_one":    "it is the only one paired",
}

// showDefault prints which runtime a call uses that names none, and why.
func showDefault(set *config.Settings, store *pairing.Store, asJSON bool, std terminal.Streams) error {
	r, err := pairing.Resolve("", set.Get, store)
	if err != nil {
		return err
	}
	reason := "only_one"
	switch {
	case r.Name == pairing.EnvName:
		reason = "environment"
	case r.Chosen:
		reason = "chosen"
	case r.Name == pairing.DefaultName:
		reason = "name"
	}
	if asJSON {
		return cli.PrintJSON(std.Out, defaultRuntime{r.Name, r.URL, reason})
	}
	_, err = fmt.Fprintf(std.Out, "The default runtime is %q, %s (%s).\n", r.Name, plain.Line(r.URL), reasons[reason])
	return err
}
