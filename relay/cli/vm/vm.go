// Package vm has `colab-relay vm`: the commands that start, list and stop Colab's VMs. It must not
// speak to Google itself: relay/vm and its backends do. Start reading at Command.
package vm

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
)

// Command returns `colab-relay vm`.
func Command(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm COMMAND",
		Short: "Start, list and stop Colab's VMs with your Google account",
		Long: "Start Colab's VMs with your Google account, with the executor running and paired, and stop them. First run `colab-relay vm login`, which shows the rules and risks.\n" +
			"A VM with an accelerator uses compute units until you stop it with `colab-relay vm down`.",
		Example: "  colab-relay vm login\n  colab-relay vm up --gpu T4,L4\n  colab-relay vm list\n  colab-relay vm down vm",
		Args:    cli.NoSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		loginCommand(set, std),
		upCommand(set, std),
		listCommand(set, std),
		downCommand(set, std),
	)
	return cmd
}

// withVMs calls use with what starts VMs. file is the executor for them; empty for that of the
// release.
func withVMs(set *config.Settings, file string, use func(*vm.Manager) error) error {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return err
	}
	m := cli.NewVMs(*set, cfg, file, nil)
	defer m.Close()
	return use(m)
}

// completeVMs offers the names of the VMs on record to the shell.
func completeVMs(set *config.Settings) cobra.CompletionFunc {
	return cli.FirstArgument(func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
		_ = withVMs(set, "", func(m *vm.Manager) error {
			names = m.Names()
			return nil
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// hardware names what a VM has.
func hardware(v vm.VM) string {
	if v.HighRAM {
		return fmt.Sprintf("%s, high RAM", v.Accelerator)
	}
	return v.Accelerator
}

func listCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the VMs that this computer started, and others of the account",
		Long:    "List the VMs that this computer started, whether or not Colab still has them, and all others of the account that Google's service shows, such as those of open notebooks.",
		Example: "  colab-relay vm list\n  colab-relay vm list --json",
		Args:    cli.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withVMs(set, "", func(m *vm.Manager) error { return listVMs(cmd.Context(), m, asJSON, std) })
		},
	}
	cli.AddJSONFlag(cmd, &asJSON)
	return cmd
}

func listVMs(ctx context.Context, m *vm.Manager, asJSON bool, std terminal.Streams) error {
	all, err := m.List(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return cli.PrintJSON(std.Out, all)
	}
	for _, note := range all.Notes {
		fmt.Fprintf(std.Err, "note: %s\n", plain.Line(note))
	}
	if len(all.VMs) == 0 {
		if len(all.Notes) > 0 {
			fmt.Fprintln(std.Err, "no VMs to show; the notes above say what may be missing")
			return nil
		}
		fmt.Fprintln(std.Err, "no VMs: `colab-relay vm up` starts one")
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "HARDWARE"}, terminal.Column{Title: "STATE"}, terminal.Column{Title: "REQUESTED"}, terminal.Column{Title: "REACHED BY"}, terminal.Column{Title: "ID"})
	for _, v := range all.VMs {
		asked := ""
		if !v.Asked.IsZero() {
			asked = cli.When(v.Asked, time.Now())
		}
		table.Add(v.Name, hardware(v), string(v.State), asked, string(v.Via), v.ID)
	}
	if err := table.Print(std.Out); err != nil {
		return err
	}
	for _, v := range all.VMs {
		if v.Note != "" && v.State != vm.StateReady {
			fmt.Fprintf(std.Err, "%s: %s\n", v.Name, plain.Line(v.Note))
		}
	}
	return nil
}

func downCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "down NAME",
		Short: "Stop a VM; everything on it is lost",
		Long: "Stop a VM and wait until Google no longer lists it. Everything on it is lost, and its pairing is removed. NAME is the VM's name or its id, as `colab-relay vm list` shows them. It also ends a start in progress, and removes a VM from the list that Colab has ended or never created.\n" +
			"A VM that this computer did not start, such as that of an open notebook, is stopped only with --force and its id.",
		Example: "  colab-relay vm down vm\n  colab-relay vm down --force m-s-1a2b3c",
		Args:    cli.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withVMs(set, "", func(m *vm.Manager) error {
				stopped, err := m.Down(cmd.Context(), args[0], force)
				if err != nil {
					return err
				}
				name := stopped.Name
				if name == "" {
					name = stopped.ID
				}
				fmt.Fprintf(std.Out, "VM %q (%s) is stopped: Google no longer lists it.\n", name, hardware(stopped))
				return nil
			})
		},
		ValidArgsFunction: completeVMs(set),
	}
	cmd.Flags().BoolVar(&force, "force", false, "also stop a VM that this computer did not start")
	return cmd
}
