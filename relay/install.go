package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"colabrelay/relay/hostconfig"
	"colabrelay/relay/plain"
)

func installCommand(set *settings, std streams) *cobra.Command {
	dryRun := false
	cmd := &cobra.Command{
		Use:   "install [HOST]",
		Short: "Write this relay into an MCP host's config; without HOST, list the hosts",
		Long:  "Write this relay into an MCP host's configuration file. Everything else in the file stays as it is; what goes and comes is shown.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			place, err := placeOf(set.getenv)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return listHosts(place, std)
			}
			return install(args[0], place, dryRun, std)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, and write nothing")
	return cmd
}

// placeOf is where this user's hosts keep their files.
func placeOf(getenv func(string) string) (hostconfig.Place, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return hostconfig.Place{}, fmt.Errorf("find the user's folder: %v", err)
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return hostconfig.Place{}, fmt.Errorf("find the user's config folder: %v", err)
	}
	return hostconfig.Place{Home: home, Config: config, Getenv: getenv}, nil
}

func install(name string, place hostconfig.Place, dryRun bool, std streams) error {
	host, err := hostconfig.Find(name)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's own path: %v", err)
	}
	command := hostconfig.Command{Path: program, Args: []string{"serve"}}
	err = change(host, place, command, dryRun, std)
	if err != nil && !errors.Is(err, hostconfig.ErrChanged) {
		fmt.Fprintf(std.err, "To have the relay in %s all the same, %s", host.Title, host.ByHand(command))
	}
	return err
}

// change makes host start command, or only shows how its file would change.
func change(host hostconfig.Host, place hostconfig.Place, command hostconfig.Command, dryRun bool, std streams) error {
	change, err := hostconfig.Plan(host, place, command)
	if err != nil {
		return err
	}
	if change.None() {
		fmt.Fprintf(std.out, "%s starts this relay already (%s).\n", host.Title, change.Path)
		return nil
	}
	fmt.Fprint(std.out, plain.Text(change.Diff()))
	if dryRun {
		fmt.Fprintln(std.out, "Nothing was written.")
		return nil
	}
	if err := change.Write(); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "Written. %s\n", host.After)
	return nil
}

// listHosts says which hosts there are and which of them start a relay.
func listHosts(place hostconfig.Place, std streams) error {
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HOST\t\tRELAY")
	for _, h := range hostconfig.Hosts {
		program, ok := hostconfig.Installed(h, place)
		if !ok {
			program = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", h.Name, h.Title, plain.Line(program))
	}
	return table.Flush()
}
