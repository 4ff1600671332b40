package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// restartedKernel is the answer of restart, with the names of the tool's answer.
type restartedKernel struct {
	KernelID string                `json:"kernel_id"`
	Status   contract.KernelStatus `json:"kernel_status"`
	Python   string                `json:"python"`
	Runtime  string                `json:"runtime"`
}

func restartCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := runsCommand{set: set, std: std}
	yes := false
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Restart the kernel; variables are lost, files stay",
		Long: "End the VM's Python process and start a new one. Its variables, imports and functions are lost, the current run ends, and queued runs are cancelled. Files stay.\n" +
			"It asks for confirmation first; without a terminal, --yes is required.",
		Example:           "  colab-relay restart\n  colab-relay restart --yes --json",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes && !terminal.Is(std.In) {
				return usagef("restart deletes all variables on the VM: confirm it with --yes")
			}
			return c.session(cmd.Context(), nil, func(ctx context.Context, s runSession) error {
				old, err := s.Client.Kernel(ctx)
				if err != nil {
					return err
				}
				question := fmt.Sprintf("Restart the kernel of %q, which is %s? All variables are lost.", s.Runtime, plain.Line(string(old.Status)))
				if !yes && !terminal.Confirm(ctx, std, question) {
					return errors.New("not restarted")
				}
				k, err := s.Client.RestartKernel(ctx, old.KernelID)
				if err != nil {
					return err
				}
				if s.LastSeen.Load != nil { // requested, so that no later command warns of it
					s.LastSeen.Save(s.Runtime, s.LastSeen.Load(s.Runtime).Updated(s.Client.InstanceID(), k.KernelID))
				}
				if c.json {
					return printJSON(std.Out, restartedKernel{k.KernelID, k.Status, k.Python, s.Runtime})
				}
				_, err = fmt.Fprintf(std.Out, "new kernel on %s: Python %s, %s\n", s.Runtime, plain.Line(k.Python), plain.Line(string(k.Status)))
				return err
			})
		},
	}
	addRuntimeFlag(cmd, &c.runtime)
	addJSONFlag(cmd, &c.json)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}
