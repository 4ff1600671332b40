package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/hostconfig"
	"colabrelay/relay/plain"
	"colabrelay/relay/program"
	"colabrelay/relay/terminal"
	"colabrelay/relay/toolsets"
)

// InstallCommand returns `colab-relay install`.
func InstallCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	var (
		all, onlyPrint, asJSON bool
		served                 string
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
		Args: cli.Arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkInstall(args, all, onlyPrint, asJSON); err != nil {
				return err
			}
			if _, err := toolsets.Parse(served); served != "" && err != nil {
				return cli.Usagef("--toolsets %w", err)
			}
			user, err := hostconfig.ThisUser(set.Getenv)
			if err != nil {
				return err
			}
			i := installer{user: user, std: std, onlyPrint: onlyPrint}
			if cmd.Flags().Changed("toolsets") {
				i.toolsets = &served
			}
			switch {
			case all:
				return i.all(cmd.Context())
			case len(args) == 0:
				return listHosts(user, asJSON, std)
			}
			host, err := hostconfig.Find(args[0])
			if err != nil {
				return cli.AsUsage(err)
			}
			return i.install(cmd.Context(), host)
		},
		ValidArgsFunction: completeHosts,
	}
	cmd.Flags().BoolVar(&all, "all", false, "add the relay to every host found on this computer")
	cmd.Flags().BoolVar(&onlyPrint, "print", false, "show what would be done, and change nothing")
	cmd.Flags().StringVar(&served, "toolsets", "", "serve these `SETS` of tools: "+toolsets.Names("or", "all")+", separated by commas; empty: the relay chooses")
	cli.AddJSONFlag(cmd, &asJSON)
	return cmd
}

func checkInstall(args []string, all, onlyPrint, asJSON bool) error {
	switch {
	case all && len(args) > 0:
		return cli.Usagef("give a HOST or --all, not both")
	case asJSON && (all || onlyPrint || len(args) > 0):
		return cli.Usagef("--json is for the list of hosts, without HOST and other flags")
	case onlyPrint && !all && len(args) == 0:
		return cli.Usagef("--print needs a HOST or --all")
	}
	return nil
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
// served is empty.
func withToolsets(args []string, served string) []string {
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
	if served == "" {
		return kept
	}
	return append(kept, flag+"="+served)
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
	err = errors.Join(failed...)
	if err == nil && !i.onlyPrint {
		fmt.Fprint(i.std.Out, pathHint(i.user, from, command.Path))
	}
	return err
}

// copy copies this program to path, and says so.
func (i installer) copy(ctx context.Context, from, path string) error {
	plan, err := program.Plan(ctx, from, cli.Version, path)
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
		fmt.Fprintf(i.std.Out, "%s this program (%s) to %s.\n", will, cli.Version, plain.Line(path))
	case program.Replace:
		before := "another build"
		if plan.Before != "" {
			before = plan.Before
		}
		fmt.Fprintf(i.std.Out, "%s this program (%s) over %s in %s.\n", will, cli.Version, before, plain.Line(path))
	case program.Newer:
		fmt.Fprintf(i.std.Out, "%s is a newer release (%s) than this program (%s), and is kept. To go back, delete it and run this command again.\n", plain.Line(path), plan.Before, cli.Version)
	}
	return nil
}

// add makes a host start command.
func (i installer) add(h hostconfig.Host, command hostconfig.Command) error {
	changed, found := false, h.Found(i.user)
	for _, t := range h.Targets(i.user) {
		change, err := hostconfig.Plan(t, command)
		if err == nil && !change.None() && !i.onlyPrint {
			changed = changed || change.After.Off == ""
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
	defer i.warn(h, c)
	if c.None() {
		if c.After.Off == "" {
			fmt.Fprintf(i.std.Out, "%s already starts this relay (%s).\n", h.Title, plain.Line(c.Path))
		}
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

// warn says what keeps a host from starting the relay, or the relay from the network.
func (i installer) warn(h hostconfig.Host, c hostconfig.Change) {
	if c.After.Off != "" {
		fmt.Fprintf(i.std.Out, "%s does not start the relay: %s (%s). Turn it on in %s, or correct the file.\n", h.Title, plain.Line(c.After.Off), plain.Line(c.Path), h.Title)
	}
	if names := i.user.Differing(c.After); len(names) > 0 {
		fmt.Fprintf(i.std.Out, "The entry does not set %s as this shell does, and many hosts do not pass on a shell's variables. If the relay needs them to reach the network, write them into \"env\" of the entry (docs/networks.md).\n", strings.Join(names, ", "))
	}
}

// byHand adds to an error what a person can do instead.
func byHand(err error, h hostconfig.Host, command hostconfig.Command) error {
	return fmt.Errorf("%w\nTo use the relay in %s anyway, %s", err, h.Title, strings.TrimSuffix(h.ByHand(command), "\n"))
}

// UninstallCommand returns `colab-relay uninstall`.
func UninstallCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "uninstall [HOST]",
		Short: "Remove the relay from an MCP host",
		Long: "Remove the relay's entry from an MCP host's configuration file, and nothing else. If nothing else has changed since `colab-relay install`, the file becomes what it was before. An entry that starts another program under the relay's name is left alone.\n" +
			"\n--all removes the relay from all hosts, and deletes the copy of this program that they start. Pairings, downloads and checkpoints are kept.",
		Example: "  colab-relay uninstall cursor\n  colab-relay uninstall --all",
		Args:    cli.Arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return cli.Usagef("give a HOST or --all")
			}
			user, err := hostconfig.ThisUser(set.Getenv)
			if err != nil {
				return err
			}
			host, err := hostconfig.Find(strings.Join(args, ""))
			if err != nil && !all {
				return cli.AsUsage(err)
			}
			unlock, err := user.Lock(cmd.Context())
			if err != nil {
				return err
			}
			defer unlock()
			if all {
				return uninstallAll(user, std)
			}
			return uninstall(host, user, std)
		},
		ValidArgsFunction: completeHosts,
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove the relay from all hosts, and delete the copy of this program")
	return cmd
}

// uninstallAll removes the relay from all hosts. If one fails, it may still start the
// copy of this program, which is kept.
func uninstallAll(user hostconfig.User, std terminal.Streams) error {
	var failed []error
	for _, h := range hostconfig.Hosts {
		if slices.ContainsFunc(h.Targets(user), hostconfig.Target.MayStart) {
			failed = append(failed, uninstall(h, user, std))
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

// listHosts prints the supported hosts and which program each starts as the relay.
func listHosts(user hostconfig.User, asJSON bool, std terminal.Streams) error {
	states := hostconfig.States(user)
	if asJSON {
		return cli.PrintJSON(std.Out, struct {
			Hosts []hostconfig.State `json:"hosts"`
		}{states})
	}
	table := tabwriter.NewWriter(std.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HOST\tNAME\tSTATE")
	for _, s := range states {
		before := ""
		for _, f := range s.Files {
			if text := plain.Line(stateText(s, f)); text != before {
				fmt.Fprintf(table, "%s\t%s\t%s\n", s.Host, s.Title, text)
				before = text
			}
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(std.Out, "Run `colab-relay install HOST` to add the relay.")
	return err
}

func stateText(s hostconfig.State, f hostconfig.FileState) string {
	switch {
	case f.Problem != "":
		return f.Problem
	case f.Off != "":
		return "does not start the relay: " + f.Off
	case f.Installed:
		return "starts " + f.Command
	case !s.Found:
		return "not found on this computer"
	case len(s.Files) > 1:
		return "found, without the relay in " + f.Path
	}
	return "found, without the relay"
}

// pathHint is a line that says how to put the folder of the copy on PATH; empty if a
// shell finds colab-relay already. from is this program.
func pathHint(user hostconfig.User, from, installed string) string {
	folder := filepath.Dir(installed)
	if slices.Contains(filepath.SplitList(user.Getenv("PATH")), folder) {
		return ""
	}
	if found := onPath(user.Getenv); found != "" && !(sameFile(found, from) && passing(user, from)) {
		return ""
	}
	if user.OS == "windows" {
		return fmt.Sprintf(`To call colab-relay in a terminal, run this in PowerShell once: [Environment]::SetEnvironmentVariable("Path", '%s;' + [Environment]::GetEnvironmentVariable("Path", "User"), "User")`+"\n", strings.ReplaceAll(folder, "'", "''"))
	}
	return fmt.Sprintf("To call colab-relay in a terminal, add this line to your shell's profile, such as ~/.profile: export PATH=%q\n", folder+":$PATH")
}

// onPath returns the colab-relay that a shell finds, or "".
func onPath(getenv func(string) string) string {
	for _, folder := range filepath.SplitList(getenv("PATH")) {
		if found, err := exec.LookPath(filepath.Join(folder, cli.CommandName)); err == nil && filepath.IsAbs(folder) {
			return found
		}
	}
	return ""
}

// passing reports whether a program will probably disappear: package runners put
// themselves on the PATH of what they run.
func passing(user hostconfig.User, path string) bool {
	for _, folder := range []string{user.Cache, filepath.Join(user.Home, ".cache")} {
		if strings.HasPrefix(path, folder+string(filepath.Separator)) {
			return true
		}
	}
	return slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "_npx")
}

func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
