package tools

import (
	"context"
	"fmt"
	"strings"

	"colabrelay/relay/hint"
	"colabrelay/shared/contract"
)

// Variables is the answer of list_colab_variables.
type Variables struct {
	Count     int                 `json:"count"` // number of all variables, including those not listed
	Variables []contract.Variable `json:"variables,omitzero"`
	Truncated bool                `json:"truncated"` // not all fit into the answer; inspect_variable finds any of them by name
}

func listVariables() tool {
	return define(spec{
		name: "list_colab_variables", title: "List variables",
		summary:     "lists the user's variables without running any of their code",
		description: "Use it to see what earlier code left in the kernel, or what takes up memory: name, type, size, shape, dtype and bytes of each variable. It runs no user code.",
		readOnly:    true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, _ noArgs) (*Variables, *Problem) {
		got, err := c.target.Client.Variables(ctx)
		if err != nil {
			return nil, problemOf(err)
		}
		c.checkKernel(got.KernelID)
		kept, cut := fitList(got.Variables)
		return &Variables{Count: got.Count, Variables: kept, Truncated: cut || got.Count > len(kept)}, nil
	})
}

func (v *Variables) text(b *words) {
	fmt.Fprintf(b, "Variables: %d\n", v.Count)
	if v.Truncated {
		fmt.Fprintf(b, "Only the first %d are listed.\n", len(v.Variables))
	}
	var list strings.Builder
	for _, one := range v.Variables {
		list.WriteString(describe(one) + "\n")
	}
	b.quote("variables", list.String())
}

func describe(v contract.Variable) string {
	s := v.Name + ": " + v.Type
	if v.Shape != nil {
		s += fmt.Sprintf(" %v", v.Shape)
	} else if v.Size != nil {
		s += fmt.Sprintf(" of %d", *v.Size)
	}
	if v.Dtype != nil {
		s += " " + *v.Dtype
	}
	if v.Bytes != nil {
		s += fmt.Sprintf(", %d bytes", *v.Bytes)
	}
	return s
}

type inspectArgs struct {
	Name string `json:"name" min:"1" max:"1000" doc:"A variable's name, not an expression."`
	target
}

// Inspection is the answer of inspect_variable.
type Inspection struct {
	contract.Variable
	Preview string `json:"preview"` // the beginning of its value, for known types only
}

func inspectVariable() tool {
	return define(spec{
		name: "inspect_variable", title: "Inspect a variable",
		summary:     "describes one variable, with a preview of its value, without running its code",
		description: "Shows one variable: type, shape, dtype, bytes and a preview of its value. It runs no user code, such as __repr__.",
		readOnly:    true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, args inspectArgs) (*Inspection, *Problem) {
		got, err := c.target.Client.Inspect(ctx, args.Name)
		if err != nil {
			return nil, problemOn(hint.Variable, args.Name, err)
		}
		c.checkKernel(got.KernelID)
		return &Inspection{Variable: got.Variable, Preview: got.Preview}, nil
	})
}

func (i *Inspection) text(b *words) {
	b.quote("variable", describe(i.Variable)+"\n"+i.Preview)
}

// Cleaned is the answer of cleanup_colab.
type Cleaned struct {
	MemoryFreedMB        *float64 `json:"memory_freed_mb,omitzero"`
	MemoryAvailableNowGB *float64 `json:"memory_available_now_gb,omitzero"`
	VariablesCleared     int      `json:"variables_cleared"`
	ClearedVariables     []string `json:"cleared_variables,omitzero"`
	GPUCacheCleared      bool     `json:"gpu_cache_cleared"`
	FiguresClosed        int      `json:"figures_closed"`
}

func cleanup() tool {
	return define(spec{
		name: "cleanup_colab", title: "Free memory on the VM",
		summary:     "deletes variables, closes figures and empties torch's GPU cache; deletes no files",
		description: "Use it when memory runs low (error low_memory) or between unrelated tasks. It deletes all variables of the kernel, closes figures and empties the GPU cache; files and imports stay.",
		destructive: true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, _ noArgs) (*Cleaned, *Problem) {
		kernelID, p := c.intendedKernel(ctx, c.target.Client.CurrentKernel)
		if p != nil {
			return nil, p
		}
		got, err := c.target.Client.Cleanup(ctx, kernelID)
		if err != nil {
			return nil, problemAbout(hint.Kernel, err)
		}
		c.checkKernel(got.KernelID)
		return &Cleaned{
			MemoryFreedMB:        round((float64(got.MemoryBeforeBytes)-float64(got.MemoryAfterBytes))/(1<<20), 10),
			MemoryAvailableNowGB: round(float64(got.MemoryFreeBytes)/(1<<30), 100),
			VariablesCleared:     got.VariablesCleared, ClearedVariables: firsts(got.ClearedVariables),
			GPUCacheCleared: got.GPUCacheCleared, FiguresClosed: got.FiguresClosed,
		}, nil
	})
}

func (c *Cleaned) text(b *words) {
	freed := fmt.Sprintf("%.1f MB of memory freed", *c.MemoryFreedMB)
	if *c.MemoryFreedMB <= 0 {
		freed = "no memory freed"
	}
	fmt.Fprintf(b, "Variables deleted: %d; %s, %.2f GB available now\n", c.VariablesCleared, freed, *c.MemoryAvailableNowGB)
}
