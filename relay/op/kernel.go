package op

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/hint"
	"colabrelay/relay/kernelcall"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// Kernel is the answer of restart_kernel.
type Kernel struct {
	KernelID string `json:"kernel_id"`
	Status   string `json:"kernel_status"`
	Python   string `json:"python"`
}

func restartKernel() Operation {
	return operation(spec{
		title:       "Restart the kernel",
		description: "Use it when a run ignores interrupt_execution, when memory stays full after cleanup_colab, or for a clean start. All variables and imports are lost, a run in progress ends, queued runs are cancelled; files are kept.",
		Command: Command{Group: "run", Confirm: true,
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
			return nil, hint.With(hint.Kernel, "", err)
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
	return k, hint.With(hint.Kernel, "", err)
}

func (k *Kernel) text(b *words) {
	fmt.Fprintf(b, "New kernel %s (Python %s), %s. All variables of the old one are gone.\n", inline(k.KernelID), inline(k.Python), k.Status)
}

// Variables is the answer of list_colab_variables.
type Variables struct {
	Count     int                 `json:"count"` // number of all variables, including those not listed
	Variables []contract.Variable `json:"variables,omitzero"`
	Truncated bool                `json:"truncated"` // inspect_variable finds by its name what is not listed
}

func listVariables() Operation {
	return operation(spec{
		title:       "List variables",
		description: "Use it to see what earlier code left in the kernel, or what takes up memory: name, type, size, shape, dtype and bytes of each variable. It runs no user code.",
		Command: Command{Group: "run",
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

func inspectVariable() Operation {
	return operation(spec{
		title:       "Inspect a variable",
		description: "Shows one variable: type, shape, dtype, bytes and a preview of its value. It runs no user code, such as __repr__.",
	}, func(ctx context.Context, c *call, args inspectArgs) (*Inspection, error) {
		got, err := c.target.Client.Inspect(ctx, args.Name)
		if err != nil {
			return nil, hint.With(hint.Variable, args.Name, err)
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

func cleanup() Operation {
	return operation(spec{
		title:       "Free memory on the VM",
		description: "Use it when memory runs low (error low_memory) or between unrelated tasks. It deletes all variables of the kernel, closes figures and empties the GPU cache; files and imports stay.",
		Command: Command{Group: "run", Confirm: true,
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
			return nil, hint.With(hint.Kernel, "", err)
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

// maxReport bounds what a function in the kernel returns. Its JSON may escape every character beyond
// ASCII.
const maxReport = 1 << 20 // bytes

// ask calls a function of the Python package in the kernel and returns its report. It waits
// in the queue like a run, and always answers within the call: if the kernel is occupied for
// so long, or the function takes longer than limit or the rest of the call, nothing of it
// remains in the queue.
func (c *call) ask(ctx context.Context, f kernelpy.Call, limit time.Duration) (json.RawMessage, error) {
	c.tellOccupied(ctx)
	report, last, err := kernelcall.Ask(ctx, c.target.Client, f, kernelcall.Options{
		Until: time.Now().Add(c.waitBudget()), Limit: limit, MaxReport: maxReport,
	})
	if last.ExecutionID != "" {
		c.checkKernel(last.KernelID)
		c.warnOfEnd(last.SessionMinutesLeft)
	}
	return report, err
}

// tellOccupied tells a person that a run has the kernel, whose end the command waits for.
func (c *call) tellOccupied(ctx context.Context) {
	if c.person == nil {
		return
	}
	if k, err := c.target.Client.Kernel(ctx); err == nil && k.Status == contract.KernelBusy {
		c.step("a run occupies the kernel: waiting for its end")
	}
}
