package tools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/hint"
	"colabrelay/shared/contract"
)

// Kernel is what restart_kernel answers with.
type Kernel struct {
	KernelID  string     `json:"kernel_id"`
	Status    string     `json:"kernel_status"`
	Python    string     `json:"python"`
	StartedAt *time.Time `json:"started_at"`
	Lives     int        `json:"lives" doc:"Kernels started so far by this executor."`
}

func restartKernel() tool {
	return define(spec{
		name: "restart_kernel", title: "Restart the kernel",
		description: "End the VM's Python process and start a new one. All variables, imports and functions are gone, a run under way is ended, queued ones are cancelled; files stay. Use it when the kernel does not answer to interrupt_execution, when memory stays full after cleanup_colab, or for a clean start.",
		destructive: true, openWorld: true,
	}, func(ctx context.Context, c *call, _ noArgs) (*Kernel, *Problem) {
		old, p := c.meantKernel(ctx, c.target.Client.Kernel)
		if p != nil {
			return nil, p
		}
		k, err := c.target.Client.RestartKernel(ctx, old)
		if err != nil {
			return nil, kernelProblem(err)
		}
		c.kernels.record(c.target.Name, k.KernelID) // asked for, so no warning
		return &Kernel{KernelID: k.KernelID, Status: string(k.Status), Python: k.Python, StartedAt: k.StartedAt, Lives: k.Lives}, nil
	})
}

// meantKernel asks for the kernel that a call means: one of the VM that answered last.
// When another VM answers by now, its kernel is not the one.
func (c *call) meantKernel(ctx context.Context, ask func(context.Context) (contract.Kernel, error)) (id string, p *Problem) {
	known := c.target.Client.InstanceID()
	k, err := ask(ctx)
	if err == nil && known != "" && c.target.Client.InstanceID() != known {
		err = &contract.Error{Code: contract.CodeNewInstance}
	}
	if err != nil {
		return "", kernelProblem(err)
	}
	return k.KernelID, nil
}

// kernelProblem is problemOf an error of a call about one kernel.
func kernelProblem(err error) *Problem {
	p := problemAbout(hint.Kernel, err)
	if p.Code == string(contract.CodeNewInstance) {
		p.Message = "the VM behind this address is a new one, and its kernel was not changed; the variables of the old VM are gone"
	}
	return p
}

func (k *Kernel) text(b *strings.Builder) {
	fmt.Fprintf(b, "New kernel %s (Python %s), %s. All variables of the old one are gone.\n", k.KernelID, k.Python, k.Status)
}

// sortedPairs lists a map by key.
func sortedPairs(m map[string]string) [][2]string {
	pairs := make([][2]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, [2]string{key, m[key]})
	}
	return pairs
}
