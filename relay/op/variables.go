package op

import (
	"context"
	"fmt"
	"strings"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// Variables is the answer of list_colab_variables.
type Variables struct {
	Count     int                 `json:"count"` // number of all variables, including those not listed
	Variables []contract.Variable `json:"variables,omitzero"`
	Truncated bool                `json:"truncated"` // inspect_variable finds by its name what is not listed
}

func listVariables() tool {
	return operation(spec{
		title:       "List variables",
		summary:     "lists the user's variables without running any of their code",
		description: "Use it to see what earlier code left in the kernel, or what takes up memory: name, type, size, shape, dtype and bytes of each variable. It runs no user code.",
		command: Command{Group: "run",
			Short: "List the variables in the VM's kernel, or show one",
			Long: "List the variables in the VM's kernel, or show the type, shape and beginning of one. None of their code is run, so this is safe for any object.\n" +
				"It fails with kernel_busy while a run occupies the kernel.",
			Examples: "  colab-relay vars\n  colab-relay vars df\n  colab-relay vars --json"},
	}, func(ctx context.Context, c *call, _ noArgs) (*Variables, error) {
		got, err := c.target.Client.Variables(ctx)
		if err != nil {
			return nil, err
		}
		c.checkKernel(got.KernelID)
		kept := fit(c, got.Variables)
		return &Variables{Count: got.Count, Variables: kept, Truncated: got.Count > len(kept)}, nil
	})
}

func (v *Variables) text(w *words) {
	if len(v.Variables) == 0 {
		w.note("the kernel has no variables")
		return
	}
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "TYPE"}, terminal.Column{Title: w.either("BYTES", "SIZE"), Right: true}, terminal.Column{Title: "SHAPE"})
	for _, one := range v.Variables {
		table.Add(one.Name, typeOf(one), sizeOf(w, one), shapeOf(one))
	}
	w.table("variables", table)
	if missing := v.Count - len(v.Variables); missing > 0 {
		w.note("%s not listed; %s shows any of them", plain.Count(missing, "more variable"), w.either("inspect_variable", "`colab-relay vars NAME`"))
	}
}

// typeOf is a variable's type, with that of its items.
func typeOf(v contract.Variable) string {
	if v.Dtype == nil {
		return v.Type
	}
	return v.Type + " of " + *v.Dtype
}

// sizeOf is the memory that a variable itself takes.
func sizeOf(w *words, v contract.Variable) string {
	if v.Bytes == nil {
		return ""
	}
	return w.bytes(*v.Bytes)
}

// shapeOf is the shape of an array, or else the number of items.
func shapeOf(v contract.Variable) string {
	switch {
	case v.Shape != nil:
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(v.Shape), "[]"), " ", " x ")
	case v.Size != nil:
		return plain.Count(*v.Size, "item")
	}
	return ""
}

type inspectArgs struct {
	Name string `json:"name" arg:"NAME" min:"1" max:"1000" doc:"A variable's name, not an expression."`
	target
}

// Inspection is the answer of inspect_variable.
type Inspection struct {
	contract.Variable
	Preview string `json:"preview"` // the beginning of its value, for known types only
}

func inspectVariable() tool {
	return operation(spec{
		title:       "Inspect a variable",
		summary:     "describes one variable, with a preview of its value, without running its code",
		description: "Shows one variable: type, shape, dtype, bytes and a preview of its value. It runs no user code, such as __repr__.",
	}, func(ctx context.Context, c *call, args inspectArgs) (*Inspection, error) {
		got, err := c.target.Client.Inspect(ctx, args.Name)
		if err != nil {
			return nil, about(hint.Variable, args.Name, err)
		}
		c.checkKernel(got.KernelID)
		return &Inspection{Variable: got.Variable, Preview: got.Preview}, nil
	})
}

func (i *Inspection) text(w *words) {
	parts := []string{i.Name + ": " + typeOf(i.Variable)}
	if shape := shapeOf(i.Variable); shape != "" {
		parts = append(parts, shape)
	}
	if i.Bytes != nil {
		parts = append(parts, w.bytes(*i.Bytes)+w.either(" bytes", ""))
	}
	w.quote("variable", plain.Line(strings.Join(parts, ", "))+"\n"+i.Preview)
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
	return operation(spec{
		title:       "Free memory on the VM",
		summary:     "deletes variables, closes figures and empties torch's GPU cache; deletes no files",
		description: "Use it when memory runs low (error low_memory) or between unrelated tasks. It deletes all variables of the kernel, closes figures and empties the GPU cache; files and imports stay.",
		command: Command{Group: "run", Confirm: true,
			Short:    "Delete all variables and free memory; files and imports stay",
			Long:     "Delete all variables of the VM's kernel, close its figures, and empty torch's GPU cache. Files and imports stay; `colab-relay restart` frees more.",
			Examples: "  colab-relay cleanup"},
	}, func(ctx context.Context, c *call, _ noArgs) (*Cleaned, error) {
		kernel, err := c.intendedKernel(ctx, c.target.Client.CurrentKernel)
		if err != nil {
			return nil, err
		}
		if err := c.confirm("Delete all variables of the kernel of %q?", c.target.Name); err != nil {
			return nil, err
		}
		got, err := c.target.Client.Cleanup(ctx, kernel.KernelID)
		if err != nil {
			return nil, about(hint.Kernel, "", err)
		}
		c.checkKernel(got.KernelID)
		return &Cleaned{
			MemoryFreedMB:        round((float64(got.MemoryBeforeBytes)-float64(got.MemoryAfterBytes))/(1<<20), 10),
			MemoryAvailableNowGB: round(float64(got.MemoryFreeBytes)/(1<<30), 100),
			VariablesCleared:     got.VariablesCleared, ClearedVariables: fit(c, got.ClearedVariables),
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
