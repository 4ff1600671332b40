package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/hostconfig"
	"colabrelay/relay/plain"
	"colabrelay/relay/program"
	"colabrelay/relay/terminal"
)

func uninstallCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "uninstall [HOST]",
		Short: "Remove the relay from an MCP host",
		Long: "Remove the relay's entry from an MCP host's configuration file, and nothing else. If nothing else has changed since `colab-relay install`, the file becomes what it was before. An entry that starts another program under the relay's name is left alone.\n" +
			"\n--all removes the relay from all hosts, and deletes the copy of this program that they start. Pairings, downloads and checkpoints are kept.",
		Example: "  colab-relay uninstall cursor\n  colab-relay uninstall --all",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usagef("give a HOST or --all")
			}
			user, err := hostconfig.ThisUser(set.Getenv)
			if err != nil {
				return err
			}
			if all {
				return uninstallAll(cmd.Context(), user, std)
			}
			host, err := findHost(args[0])
			if err != nil {
				return err
			}
			unlock, err := user.Lock(cmd.Context())
			if err != nil {
				return err
			}
			defer unlock()
			return uninstall(host, user, std)
		},
		ValidArgsFunction: completeHosts,
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove the relay from all hosts, and delete the copy of this program")
	return cmd
}

// uninstallAll removes the relay from all hosts. If one fails, it may still start the
// copy of this program, which is kept.
func uninstallAll(ctx context.Context, user hostconfig.User, std terminal.Streams) error {
	unlock, err := user.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	var failed []error
	for _, s := range hostconfig.States(user) {
		host, err := hostconfig.Find(s.Host)
		if err != nil {
			return err
		}
		for _, f := range s.Files {
			if f.Installed || f.Problem != "" {
				failed = append(failed, uninstall(host, user, std))
				break
			}
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	path := program.PathIn(user.Data, user.OS)
	removed, err := program.Remove(path)
	if removed {
		fmt.Fprintf(std.Out, "Deleted %s.\n", plain.Line(path))
	}
	return err
}

// uninstall removes the relay from each file of a host.
func uninstall(h hostconfig.Host, user hostconfig.User, std terminal.Streams) error {
	for _, t := range h.Targets(user) {
		change, err := hostconfig.PlanRemoval(t)
		if err == nil {
			err = change.Write()
		}
		switch {
		case errors.Is(err, hostconfig.ErrNotInstalled):
			fmt.Fprintf(std.Out, "%s does not start the relay (%s).\n", h.Title, plain.Line(t.Path))
		case errors.Is(err, hostconfig.ErrOther):
			fmt.Fprintf(std.Out, "%s: %s. To remove it, %s.\n", h.Title, plain.Line(err.Error()), h.ByHandRemove())
		case errors.Is(err, hostconfig.ErrForm):
			return fmt.Errorf("%w\nTo remove the relay from %s anyway, %s", err, h.Title, h.ByHandRemove())
		case err != nil:
			return err
		default:
			reportRemoval(h, change, std)
		}
	}
	return nil
}

func reportRemoval(h hostconfig.Host, c hostconfig.Change, std terminal.Streams) {
	path := plain.Line(c.Path)
	switch {
	case c.Deletes:
		fmt.Fprintf(std.Out, "Removed the relay from %s: deleted %s, which only named the relay.\n", h.Title, path)
	case c.Restored:
		fmt.Fprintf(std.Out, "Removed the relay from %s: %s is as it was before.\n", h.Title, path)
	default:
		fmt.Fprintf(std.Out, "Removed the relay from %s, in %s.\n", h.Title, path)
		if c.Backup != "" {
			fmt.Fprintf(std.Out, "The file as it was before the relay was added is kept as %s.\n", plain.Line(c.Backup))
		}
	}
}
