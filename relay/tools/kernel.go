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

// Kernel is the answer of restart_kernel.
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
		description: "End the VM's Python process and start a new one. All variables, imports and functions are lost, a run in progress ends, queued runs are cancelled; files are kept. Use it when the kernel does not react to interrupt_execution, when memory stays full after cleanup_colab, or for a clean start.",
		destructive: true, openWorld: true,
	}, func(ctx context.Context, c *call, _ noArgs) (*Kernel, *Problem) {
		old, p := c.intendedKernel(ctx, c.target.Client.Kernel)
		if p != nil {
			return nil, p
		}
		k, err := c.target.Client.RestartKernel(ctx, old)
		if err != nil {
			return nil, kernelProblem(err)
		}
		c.kernels.record(c.target.Name, k.KernelID) // requested, so no warning
		return &Kernel{KernelID: k.KernelID, Status: string(k.Status), Python: k.Python, StartedAt: k.StartedAt, Lives: k.KernelsStarted}, nil
	})
}

// intendedKernel returns the id of the kernel that a call is about: that of the VM that
// answered last. It fails if another VM answers now.
func (c *call) intendedKernel(ctx context.Context, ask func(context.Context) (contract.Kernel, error)) (id string, p *Problem) {
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

// sortedPairs returns the entries of a map, sorted by key.
func sortedPairs(m map[string]string) [][2]string {
	pairs := make([][2]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, [2]string{key, m[key]})
	}
	return pairs
}
