package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/hostconfig"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

func installCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	dryRun := false
	cmd := &cobra.Command{
		Use:   "install [HOST]",
		Short: "Add this relay to an MCP host's configuration; without HOST, list the hosts",
		Long:  "Add this relay to an MCP host's configuration file, and show the entry. Nothing else in the file is changed. Without HOST, list the supported hosts.",
		Args:  arguments(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			user, err := hostconfig.ThisUser(set.Getenv)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return listHosts(user, std)
			}
			return install(args[0], user, dryRun, std)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the entry without writing it")
	return cmd
}

func install(name string, user hostconfig.User, dryRun bool, std terminal.Streams) error {
	host, err := hostconfig.Find(name)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's own path: %v", err)
	}
	command := hostconfig.Command{Path: program, Args: []string{"serve"}}
	err = edit(host, user, command, dryRun, std)
	if err != nil && !errors.Is(err, hostconfig.ErrChanged) {
		return fmt.Errorf("%w\nTo use the relay in %s anyway, %s", err, host.Title, strings.TrimSuffix(host.ByHand(command), "\n"))
	}
	return err
}

// edit changes the host's file so that the host starts command, or only shows the change.
func edit(host hostconfig.Host, user hostconfig.User, command hostconfig.Command, dryRun bool, std terminal.Streams) error {
	change, err := hostconfig.Plan(host, user, command)
	if err != nil {
		return err
	}
	if change.None() {
		fmt.Fprintf(std.Out, "%s already starts this relay (%s).\n", host.Title, change.Path)
		return nil
	}
	if dryRun {
		fmt.Fprintf(std.Out, "Would add this entry to %s:\n%s", plain.Line(change.Path), plain.Text(change.Entry))
		return nil
	}
	fmt.Fprintf(std.Out, "Adding this entry to %s:\n%s", plain.Line(change.Path), plain.Text(change.Entry))
	if err := change.Write(); err != nil {
		return err
	}
	fmt.Fprintf(std.Out, "Done. %s\n", host.After)
	return nil
}

// listHosts prints the supported hosts and which program each starts as the relay.
func listHosts(user hostconfig.User, std terminal.Streams) error {
	missing := false
	table := tabwriter.NewWriter(std.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HOST\tNAME\tRELAY")
	for _, h := range hostconfig.Hosts {
		program, err := hostconfig.Installed(h, user)
		switch {
		case errors.Is(err, hostconfig.ErrNotInstalled):
			program = "not installed"
			missing = true
		case err != nil:
			program = err.Error()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", h.Name, h.Title, plain.Line(program))
	}
	if err := table.Flush(); err != nil || !missing {
		return err
	}
	_, err := fmt.Fprintln(std.Out, "Run `colab-relay install HOST` to add the relay.")
	return err
}
