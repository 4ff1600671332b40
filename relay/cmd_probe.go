package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
	"colabrelay/shared/contract"
)

func probeCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	var (
		runtime string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:     "probe",
		Short:   "Describe the VM: processor, GPU, memory, disks, Python, limits",
		Long:    "Describe the VM: processor, GPU, memory, disks, Python, packages, limits, and what would make it better. Nothing is imported or changed. --json also lists the packages.",
		Example: "  colab-relay probe\n  colab-relay probe --json | jq .packages.torch",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withVM(cmd.Context(), set, named(runtime), std, func(vm openVM) error {
				got, err := vm.Client.Probe(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(std.Out, struct {
						Runtime string `json:"runtime"`
						tools.Probe
					}{vm.Name, tools.Probe{Probe: got, PackageCount: len(got.Packages)}})
				}
				printProbe(std.Out, got)
				return nil
			})
		},
	}
	addRuntimeFlag(cmd, &runtime)
	addJSONFlag(cmd, &asJSON)
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
