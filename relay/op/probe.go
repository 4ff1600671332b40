package op

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/shared/contract"
)

// Probe is the answer of probe_colab_environment.
type Probe struct {
	contract.Probe
	PackageCount int `json:"package_count"`
}

func probeEnvironment() tool {
	return operation(spec{
		title:       "Describe the VM",
		summary:     "reports CPU, GPU, TPU, disks, Python packages, limits and loaded variables",
		description: "Use it before planning work: CPU, memory, GPU, TPU, disks, Python packages with versions, limits, time left and loaded variables of the VM.",
		command: Command{Group: "run",
			Short:    "Describe the VM: processor, GPU, memory, disks, Python, limits",
			Long:     "Describe the VM: processor, GPU, memory, disks, Python, packages, limits, and what would make it better. Nothing is imported or changed. --json also lists the packages.",
			Examples: "  colab-relay probe\n  colab-relay probe --json | jq .packages.torch"},
	}, func(ctx context.Context, c *call, _ noArgs) (*Probe, error) {
		got, err := c.target.Client.Probe(ctx)
		if err != nil {
			return nil, err
		}
		c.minutesLeft(got.Limits.SessionMinutesLeft)
		p := &Probe{Probe: got, PackageCount: len(got.Packages)}
		if got.LoadedVariables != nil { // nil means unknown
			p.LoadedVariables = fit(c, got.LoadedVariables)
		}
		if c.person == nil {
			p.Packages = fitPackages(got.Packages)
		}
		return p, nil
	})
}

// fitPackages drops packages, last names first, from a set that is too long for a model.
func fitPackages(all map[string]string) map[string]string {
	var pairs [][2]string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		pairs = append(pairs, [2]string{name, all[name]})
	}
	kept := maps.Clone(all)
	for _, dropped := range pairs[len(firsts(pairs)):] {
		delete(kept, dropped[0])
	}
	return kept
}

func (p *Probe) text(w *words) {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", label, plain.Line(fmt.Sprintf(format, args...)))
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
	line("Python", "%s (%s), ipykernel %s", p.Python.Version, p.Python.Executable, p.Python.IPyKernel)
	packages := strconv.Itoa(p.PackageCount)
	if named := notablePackages(p.Packages); len(named) > 0 {
		packages += ", among them " + strings.Join(named, ", ")
	}
	line("Packages", "%s", packages)
	up := "up " + minutes(p.SessionUptimeMinutes)
	if left := p.Limits.SessionMinutesLeft; left != nil {
		up += fmt.Sprintf(", about %s left", minutes(*left))
	}
	line("Session", "%s", up)
	line("Limits", "a run may take %s; %d runs may wait; %s of output kept per run",
		progress.Duration(time.Duration(p.Limits.MaxTimeoutSeconds)*time.Second), p.Limits.MaxQueue, progress.Bytes(p.Limits.MaxLogBytes))
	if n := p.LoadedVariablesCount; n != nil {
		line("Variables", "%d%s", *n, w.either(strings.TrimSuffix(": "+strings.Join(p.LoadedVariables, ", "), ": "), "; `colab-relay vars` lists them"))
	}
	for i, advice := range p.Recommendations {
		line([]string{"Advice", ""}[min(i, 1)], "%s", advice)
	}
	w.quote("what the VM reports", b.String())
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

// notable are the packages that people and agents ask for most.
var notable = []string{"numpy", "pandas", "matplotlib", "scipy", "scikit-learn", "torch", "tensorflow", "jax", "transformers", "xgboost", "opencv-python"}

// notablePackages returns those that there are, with their versions.
func notablePackages(have map[string]string) (all []string) {
	lower := map[string]string{}
	for name, version := range have {
		lower[strings.ToLower(name)] = version
	}
	for _, name := range notable {
		if v, ok := lower[name]; ok {
			all = append(all, name+" "+v)
		}
	}
	return all
}
