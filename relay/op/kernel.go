package op

import (
	"context"
	"fmt"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// Kernel is the answer of restart_kernel.
type Kernel struct {
	KernelID string `json:"kernel_id"`
	Status   string `json:"kernel_status"`
	Python   string `json:"python"`
}

func restartKernel() tool {
	return operation(spec{
		title:       "Restart the kernel",
		summary:     "starts a new kernel; variables are lost and waiting runs are cancelled",
		description: "Use it when a run ignores interrupt_execution, when memory stays full after cleanup_colab, or for a clean start. All variables and imports are lost, a run in progress ends, queued runs are cancelled; files are kept.",
		command: Command{Group: "run", Confirm: true,
			Short:    "Restart the kernel; variables are lost, files stay",
			Long:     "End the VM's Python process and start a new one. Its variables, imports and functions are lost, the current run ends, and queued runs are cancelled. Files stay.",
			Examples: "  colab-relay restart\n  colab-relay restart --yes --json"},
	}, func(ctx context.Context, c *call, _ noArgs) (*Kernel, error) {
		old, err := c.intendedKernel(ctx, c.target.Client.Kernel)
		if err != nil {
			return nil, err
		}
		if err := c.confirm("Restart the kernel of %q, which is %s? All variables are lost.", c.target.Name, plain.Line(string(old.Status))); err != nil {
			return nil, err
		}
		k, err := c.target.Client.RestartKernel(ctx, old.KernelID)
		if err != nil {
			return nil, about(hint.Kernel, "", err)
		}
		c.kernels.record(c.target.Name, k.KernelID) // requested, so no warning
		return &Kernel{KernelID: k.KernelID, Status: string(k.Status), Python: k.Python}, nil
	})
}

// intendedKernel returns the kernel that a call is about: that of the VM that answered last. It
// fails if another VM answers now.
func (c *call) intendedKernel(ctx context.Context, ask func(context.Context) (contract.Kernel, error)) (contract.Kernel, error) {
	known := c.target.Client.InstanceID()
	k, err := ask(ctx)
	if err == nil && known != "" && c.target.Client.InstanceID() != known {
		err = &contract.Error{Code: contract.CodeNewInstance}
	}
	return k, about(hint.Kernel, "", err)
}

func (k *Kernel) text(b *words) {
	fmt.Fprintf(b, "New kernel %s (Python %s), %s. All variables of the old one are gone.\n", inline(k.KernelID), inline(k.Python), k.Status)
}
