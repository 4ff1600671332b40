package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
)

func vmCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm COMMAND",
		Short: "Start, list and stop Colab's VMs with your Google account",
		Long: "Start Colab's VMs with your Google account, with the executor running and paired, and stop them. First run `colab-relay vm login`, which shows the rules and risks.\n" +
			"A VM with an accelerator uses compute units until you stop it with `colab-relay vm down`.",
		Example: "  colab-relay vm login\n  colab-relay vm up --gpu T4,L4\n  colab-relay vm list\n  colab-relay vm down vm",
		Args:    noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		vmLoginCommand(set, std),
		vmUpCommand(set, std),
		vmListCommand(set, std),
		vmDownCommand(set, std),
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
	m := newVMs(*set, cfg, file, nil)
	defer m.Close()
	return use(m)
}

// completeVMs offers the names of the VMs on record to the shell.
func completeVMs(set *config.Settings) cobra.CompletionFunc {
	return firstArgument(func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
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
