package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// VarsCommand returns `colab-relay vars`.
func VarsCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	var (
		runtime string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "vars [NAME]",
		Short: "List the variables in the VM's kernel, or show one",
		Long: "List the variables in the VM's kernel, or show the type, shape and beginning of one. None of their code is run, so this is safe for any object.\n" +
			"It fails with kernel_busy while a run occupies the kernel.",
		Example: "  colab-relay vars\n  colab-relay vars df\n  colab-relay vars --json",
		Args:    cli.Arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.WithVM(cmd.Context(), set, cli.Named(runtime), std, func(vm cli.LiveVM) error {
				if len(args) > 0 {
					return showVariable(cli.Briefly(cmd.Context()), vm, args[0], asJSON, std)
				}
				return listVariables(cli.Briefly(cmd.Context()), vm, asJSON, std)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cli.AddRuntimeFlag(cmd, &runtime)
	cli.AddJSONFlag(cmd, &asJSON)
	return cmd
}

func listVariables(ctx context.Context, vm cli.LiveVM, asJSON bool, std terminal.Streams) error {
	got, err := vm.Client.Variables(ctx)
	if err != nil {
		return err
	}
	missing := got.Count - len(got.Variables)
	if asJSON {
		return cli.PrintJSON(std.Out, struct {
			Runtime string `json:"runtime"`
			contract.Variables
			Truncated bool `json:"truncated"`
		}{vm.Name, got, missing > 0})
	}
	if len(got.Variables) == 0 {
		fmt.Fprintln(std.Err, "the kernel has no variables")
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "TYPE"}, terminal.Column{Title: "SIZE", Right: true}, terminal.Column{Title: "SHAPE"})
	for _, v := range got.Variables {
		table.Add(v.Name, typeOf(v), sizeOf(v), shapeOf(v))
	}
	if err := table.Print(std.Out); err != nil || missing == 0 {
		return err
	}
	_, err = fmt.Fprintf(std.Err, "note: %s not listed; `colab-relay vars NAME` shows any of them\n", plain.Count(missing, "more variable"))
	return err
}

func showVariable(ctx context.Context, vm cli.LiveVM, name string, asJSON bool, std terminal.Streams) error {
	got, err := vm.Client.Inspect(ctx, name)
	if refused, ok := errors.AsType[*contract.Error](err); ok && refused.Code == contract.CodeNotFound {
		return fmt.Errorf("the kernel has no variable %q; `colab-relay vars` lists those it has", name)
	}
	if err != nil {
		return fmt.Errorf("variable %q: %w", name, err)
	}
	if asJSON {
		return cli.PrintJSON(std.Out, struct {
			Runtime string `json:"runtime"`
			contract.Inspection
		}{vm.Name, got})
	}
	parts := []string{got.Name + ": " + typeOf(got.Variable)}
	for _, text := range []string{shapeOf(got.Variable), sizeOf(got.Variable)} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	_, err = fmt.Fprintf(std.Out, "%s\n%s\n", plain.Line(strings.Join(parts, ", ")), plain.Text(strings.TrimRight(got.Preview, "\n")))
	return err
}

// typeOf is a variable's type, with that of its items.
func typeOf(v contract.Variable) string {
	if v.Dtype == nil {
		return v.Type
	}
	return v.Type + " of " + *v.Dtype
}

// sizeOf is the memory that a variable itself takes.
func sizeOf(v contract.Variable) string {
	if v.Bytes == nil {
		return ""
	}
	return progress.Bytes(*v.Bytes)
}

// shapeOf is the shape of an array, or else the number of items.
func shapeOf(v contract.Variable) string {
	switch {
	case len(v.Shape) > 0:
		var dims []string
		for _, n := range v.Shape {
			dims = append(dims, strconv.FormatInt(n, 10))
		}
		return strings.Join(dims, " x ")
	case v.Size != nil:
		return plain.Count(*v.Size, "item")
	}
	return ""
}

// ProbeCommand returns `colab-relay probe`.
func ProbeCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	var (
		runtime string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:     "probe",
		Short:   "Describe the VM: processor, GPU, memory, disks, Python, limits",
		Long:    "Describe the VM: processor, GPU, memory, disks, Python, packages, limits, and what would make it better. Nothing is imported or changed. --json also lists the packages.",
		Example: "  colab-relay probe\n  colab-relay probe --json | jq .packages.torch",
		Args:    cli.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.WithVM(cmd.Context(), set, cli.Named(runtime), std, func(vm cli.LiveVM) error {
				got, err := vm.Client.Probe(cli.Briefly(cmd.Context()))
				if err != nil {
					return err
				}
				if asJSON {
					return cli.PrintJSON(std.Out, struct {
						Runtime string `json:"runtime"`
						contract.Probe
						PackageCount int `json:"package_count"`
					}{vm.Name, got, len(got.Packages)})
				}
				printProbe(std.Out, got)
				return nil
			})
		},
	}
	cli.AddRuntimeFlag(cmd, &runtime)
	cli.AddJSONFlag(cmd, &asJSON)
	return cmd
}

func printProbe(out io.Writer, p contract.Probe) {
	line := func(label, format string, args ...any) {
		fmt.Fprintf(out, "%-10s %s\n", label, plain.Line(fmt.Sprintf(format, args...)))
	}
	line("Platform", "%s, %s, %s", p.Platform.Name, cmp.Or(p.Platform.OS, "unknown system"), p.Platform.Architecture)
	line("CPU", "%d x %s", p.Compute.CPUCount, cmp.Or(p.Compute.CPUModel, "unknown model"))
	line("Memory", "%.1f GB, %.1f GB available", p.Compute.MemoryTotalGB, p.Compute.MemoryAvailableGB)
	line("GPU", "%s", gpus(p.GPU))
	if p.TPU.Available {
		line("TPU", "%s", strings.Join(p.TPU.Devices, ", "))
	}
	for _, d := range p.Storage {
		line("Disk", "%s: %.1f GB of %.1f GB free", d.Path, d.FreeGB, d.TotalGB)
	}
	line("Python", "%s (%s)", p.Python.Version, p.Python.Executable)
	line("Packages", "%d", len(p.Packages))
	up := "up " + minutes(p.SessionUptimeMinutes)
	if left := p.Limits.SessionMinutesLeft; left != nil {
		up += fmt.Sprintf(", about %s left", minutes(*left))
	}
	line("Session", "%s", up)
	line("Limits", "a run may take %s; %d runs may wait; %s of output kept per run",
		progress.Duration(time.Duration(p.Limits.MaxTimeoutSeconds)*time.Second), p.Limits.MaxQueue, progress.Bytes(p.Limits.MaxLogBytes))
	if p.LoadedVariablesCount != nil {
		line("Variables", "%d; `colab-relay vars` lists them", *p.LoadedVariablesCount)
	}
	for i, advice := range p.Recommendations {
		line([]string{"Advice", ""}[min(i, 1)], "%s", advice)
	}
}

func gpus(g contract.GPU) string {
	if !g.Available {
		return "none"
	}
	var all []string
	for _, d := range g.Devices {
		s := d.Name
		if d.MemoryTotalMB != nil {
			s += fmt.Sprintf(", %.1f GB", *d.MemoryTotalMB/1024)
		}
		if d.MemoryUsedMB != nil {
			s += fmt.Sprintf(" (%.1f GB used)", *d.MemoryUsedMB/1024)
		}
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}

func minutes(m float64) string { return progress.Duration(time.Duration(m * float64(time.Minute))) }

// restartedKernel is the answer of restart, with the names of the tool's answer.
type restartedKernel struct {
	KernelID string                `json:"kernel_id"`
	Status   contract.KernelStatus `json:"kernel_status"`
	Python   string                `json:"python"`
	Runtime  string                `json:"runtime"`
}

// RestartCommand returns `colab-relay restart`.
func RestartCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := cli.RunsCommand{Set: set, Std: std}
	yes := false
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Restart the kernel; variables are lost, files stay",
		Long: "End the VM's Python process and start a new one. Its variables, imports and functions are lost, the current run ends, and queued runs are cancelled. Files stay.\n" +
			"It asks for confirmation first; without a terminal, --yes is required.",
		Example:           "  colab-relay restart\n  colab-relay restart --yes --json",
		Args:              cli.Arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes && !terminal.Is(std.In) {
				confirmed := cli.CommandName + " restart --yes"
				if c.Runtime != "" {
					confirmed += " --runtime " + plain.ShellWord(c.Runtime)
				}
				return cli.Usagef("restart deletes all variables on the VM: confirm it with `%s`", confirmed)
			}
			return c.Session(cli.Briefly(cmd.Context()), nil, func(ctx context.Context, s cli.RunSession) error {
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
				if c.JSON {
					return cli.PrintJSON(std.Out, restartedKernel{k.KernelID, k.Status, k.Python, s.Runtime})
				}
				_, err = fmt.Fprintf(std.Out, "new kernel on %s: Python %s, %s\n", s.Runtime, plain.Line(k.Python), plain.Line(string(k.Status)))
				return err
			})
		},
	}
	cli.AddRuntimeFlag(cmd, &c.Runtime)
	cli.AddJSONFlag(cmd, &c.JSON)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}
