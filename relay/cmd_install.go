package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/hostconfig"
	"colabrelay/relay/plain"
	"colabrelay/relay/program"
	"colabrelay/relay/suggest"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
)

func installCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	var (
		all, onlyPrint, asJSON bool
		toolsets               string
	)
	cmd := &cobra.Command{
		Use:   "install [HOST]",
		Short: "Add the relay to an MCP host; without HOST, list the hosts",
		Long: "Add the relay to an MCP host's configuration file, and show the entry. Everything else in the file stays as it is, and a copy of the file is kept beside it (NAME.before-colab-relay). Without HOST, list the supported hosts.\n" +
			"\nThe host starts a copy of this program in your data folder, because a download or the cache of a package runner may be deleted. Run the command again after an update. A newer release there is not replaced by an older one.\n" +
			"\n--toolsets writes which tools the host gets into the entry, instead of what is there; with an empty value the relay chooses. Without --toolsets, the arguments of an entry that starts a relay stay.",
		Example: "  colab-relay install                    # list the hosts\n" +
			"  colab-relay install claude-desktop     # add the relay to Claude Desktop\n" +
			"  colab-relay install cursor --toolsets all    # with the tools for notebooks and data\n" +
			"  colab-relay install cursor --print     # show what would be done\n" +
			"  colab-relay install --all              # add it to every host that is found",
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkInstall(args, all, onlyPrint, asJSON); err != nil {
				return err
			}
			if err := checkToolsets(toolsets); err != nil {
				return err
			}
			user, err := hostconfig.ThisUser(set.Getenv)
			if err != nil {
				return err
			}
			i := installer{user: user, std: std, onlyPrint: onlyPrint}
			if cmd.Flags().Changed("toolsets") {
				i.toolsets = &toolsets
			}
			switch {
			case all:
				return i.all(cmd.Context())
			case len(args) == 0:
				return listHosts(user, asJSON, std)
			}
			host, err := findHost(args[0])
			if err != nil {
				return err
			}
			return i.install(cmd.Context(), host)
		},
		ValidArgsFunction: completeHosts,
	}
	cmd.Flags().BoolVar(&all, "all", false, "add the relay to every host found on this computer")
	cmd.Flags().BoolVar(&onlyPrint, "print", false, "show what would be done, and change nothing")
	cmd.Flags().BoolVar(&onlyPrint, "dry-run", false, "the same as --print")
	cmd.Flags().Lookup("dry-run").Hidden = true
	cmd.Flags().StringVar(&toolsets, "toolsets", "", "serve these `SETS` of tools: "+tools.ToolsetNames("or", "all")+", separated by commas; empty: the relay chooses")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// checkToolsets checks the value of --toolsets.
func checkToolsets(text string) error {
	if text == "" {
		return nil
	}
	if _, err := tools.ParseToolsets(text); err != nil {
		return usagef("--toolsets %w", err)
	}
	return nil
}

func checkInstall(args []string, all, onlyPrint, asJSON bool) error {
	switch {
	case all && len(args) > 0:
		return usagef("give a HOST or --all, not both")
	case asJSON && (all || onlyPrint || len(args) > 0):
		return usagef("--json is for the list of hosts, without HOST and other flags")
	case onlyPrint && !all && len(args) == 0:
		return usagef("--print needs a HOST or --all")
	}
	return nil
}

// findHost returns the host of that name.
func findHost(name string) (hostconfig.Host, error) {
	var known []string
	for _, h := range hostconfig.Hosts {
		known = append(known, h.Name)
	}
	host, err := hostconfig.Find(name)
	if err != nil {
		return host, usagef("%w%s", err, suggest.Meant(name, known))
	}
	return host, nil
}

func completeHosts(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		for _, h := range hostconfig.Hosts {
			names = append(names, cobra.CompletionWithDesc(h.Name, h.Title))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// installer adds the relay to hosts, or only prints what it would do.
type installer struct {
	user      hostconfig.User
	std       terminal.Streams
	onlyPrint bool
	toolsets  *string // nil to leave those of an entry
}

// command returns what hosts start: the program at path.
func (i installer) command(path string) hostconfig.Command {
	c := hostconfig.Command{Path: path, Args: []string{"serve"}}
	if i.toolsets != nil {
		c.Amend = func(args []string) []string { return withToolsets(args, *i.toolsets) }
		c.Args = c.Amend(c.Args)
	}
	return c
}

// withToolsets returns the arguments of a relay with another --toolsets; without it, if
// toolsets is empty.
func withToolsets(args []string, toolsets string) []string {
	const flag = "--toolsets"
	kept := []string{}
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == flag:
			i++ // its value
		case !strings.HasPrefix(args[i], flag+"="):
			kept = append(kept, args[i])
		}
	}
	if toolsets == "" {
		return kept
	}
	return append(kept, flag+"="+toolsets)
}

// all installs into every host that is found. One that fails does not stop the others.
func (i installer) all(ctx context.Context) error {
	var found []hostconfig.Host
	for _, h := range hostconfig.Hosts {
		if h.Found(i.user) {
			found = append(found, h)
		}
	}
	if len(found) == 0 {
		return errors.New("no supported MCP host was found on this computer: `colab-relay install HOST` adds the relay anyway")
	}
	return i.install(ctx, found...)
}

// install copies this program and makes the hosts start the copy.
func (i installer) install(ctx context.Context, hosts ...hostconfig.Host) error {
	from, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's own path: %v", err)
	}
	if !i.onlyPrint {
		unlock, err := i.user.Lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	}
	command := i.command(program.PathIn(i.user.Data, i.user.OS))
	if err := i.copy(ctx, from, command.Path); err != nil {
		command.Path = from
		return byHand(err, hosts[0], command)
	}
	var failed []error
	for _, h := range hosts {
		failed = append(failed, i.add(h, command))
	}
	fmt.Fprint(i.std.Out, pathHint(i.user, from, command.Path))
	return errors.Join(failed...)
}

// copy copies this program to path, and says so.
func (i installer) copy(ctx context.Context, from, path string) error {
	plan, err := program.Plan(ctx, from, version, path)
	if err != nil {
		return err
	}
	will := "Copied"
	if i.onlyPrint {
		will = "Would copy"
	} else if err := plan.Write(); err != nil {
		return err
	}
	switch plan.Action {
	case program.Create:
		fmt.Fprintf(i.std.Out, "%s this program (%s) to %s.\n", will, version, plain.Line(path))
	case program.Replace:
		before := "another build"
		if plan.Before != "" {
			before = plan.Before
		}
		fmt.Fprintf(i.std.Out, "%s this program (%s) over %s in %s.\n", will, version, before, plain.Line(path))
	case program.Newer:
		fmt.Fprintf(i.std.Out, "%s is a newer release (%s) than this program (%s), and is kept. To go back, delete it and run this command again.\n", plain.Line(path), plan.Before, version)
	}
	return nil
}

// add makes a host start command.
func (i installer) add(h hostconfig.Host, command hostconfig.Command) error {
	changed, found := false, h.Found(i.user)
	for _, t := range h.Targets(i.user) {
		change, err := hostconfig.Plan(t, command)
		if err == nil && !change.None() && !i.onlyPrint {
			changed = true
			err = change.Write()
		}
		if errors.Is(err, hostconfig.ErrChanged) {
			return err
		}
		if err != nil {
			return byHand(err, h, command)
		}
		i.report(h, change)
	}
	if !found {
		fmt.Fprintf(i.std.Out, "%s itself was not found on this computer.\n", h.Title)
	}
	if changed {
		fmt.Fprintf(i.std.Out, "Done. %s\n", h.After)
	}
	return nil
}

func (i installer) report(h hostconfig.Host, c hostconfig.Change) {
	if c.None() {
		fmt.Fprintf(i.std.Out, "%s already starts this relay (%s).\n", h.Title, plain.Line(c.Path))
		return
	}
	added, kept := "Added", "is kept"
	if i.onlyPrint {
		added, kept = "Would add", "would be kept"
	}
	fmt.Fprintf(i.std.Out, "%s this entry to %s:\n%s", added, plain.Line(c.Path), plain.Text(c.Entry))
	if c.Replaces != "" {
		fmt.Fprintf(i.std.Out, "It replaces an entry that starts %q.\n", c.Replaces)
	}
	if c.Backup != "" {
		fmt.Fprintf(i.std.Out, "The file as it was before %s as %s.\n", kept, plain.Line(c.Backup))
	}
}

// byHand adds to an error what a person can do instead.
func byHand(err error, h hostconfig.Host, command hostconfig.Command) error {
	return fmt.Errorf("%w\nTo use the relay in %s anyway, %s", err, h.Title, strings.TrimSuffix(h.ByHand(command), "\n"))
}
