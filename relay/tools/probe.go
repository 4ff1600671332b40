package tools

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// Probe is the answer of probe_colab_environment.
type Probe struct {
	contract.Probe
	PackageCount int `json:"package_count"`
}

func probeEnvironment() tool {
	return define(spec{
		name: "probe_colab_environment", title: "Describe the VM",
		summary:     "reports CPU, GPU, TPU, disks, Python packages, limits and loaded variables",
		description: "Use it before planning work: CPU, memory, GPU, TPU, disks, Python packages with versions, limits, time left and loaded variables of the VM.",
		readOnly:    true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, _ noArgs) (*Probe, *Problem) {
		got, err := c.target.Client.Probe(ctx)
		if err != nil {
			return nil, problemOf(err)
		}
		if left := got.Limits.SessionMinutesLeft; left != nil {
			c.warnOfLimit(*left)
		}
		got.LoadedVariables = fitNames(got.LoadedVariables)
		p := &Probe{Probe: got, PackageCount: len(got.Packages)}
		p.Packages = fitPackages(got.Packages)
		return p, nil
	})
}

// fitNames shortens names. It keeps nil, which means unknown, distinct from an empty list.
func fitNames(names []string) []string {
	if names == nil {
		return nil
	}
	return firsts(names)
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

func (p *Probe) text(b *words) { b.quote("what the VM reports", p.lines()) }

func (p *Probe) lines() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Platform: %s (%s, %s)\n", p.Platform.Name, p.Platform.OS, p.Platform.Architecture)
	fmt.Fprintf(&b, "CPU: %d × %s; memory %.1f GB, %.1f available\n", p.Compute.CPUCount, p.Compute.CPUModel, p.Compute.MemoryTotalGB, p.Compute.MemoryAvailableGB)
	b.WriteString("GPU: " + gpuLine(p.GPU) + "\n")
	if p.TPU.Available {
		fmt.Fprintf(&b, "TPU: %s\n", strings.Join(p.TPU.Devices, ", "))
	}
	for _, d := range p.Storage {
		fmt.Fprintf(&b, "Disk %s: %.1f of %.1f GB free\n", d.Path, d.FreeGB, d.TotalGB)
	}
	fmt.Fprintf(&b, "Python %s, ipykernel %s, %s\n", p.Python.Version, p.Python.IPyKernel, plain.Count(p.PackageCount, "package"))
	b.WriteString(packageLine(p.Packages))
	fmt.Fprintf(&b, "Up %.0f minutes", p.SessionUptimeMinutes)
	if p.LoadedVariablesCount != nil {
		fmt.Fprintf(&b, "; variables: %s", cmp.Or(strings.Join(p.LoadedVariables, ", "), "none"))
	}
	b.WriteString("\n")
	for _, r := range p.Recommendations {
		fmt.Fprintf(&b, "- %s\n", r)
	}
	return b.String()
}

func gpuLine(g contract.GPU) string {
	if !g.Available {
		return "none"
	}
	var all []string
	for _, d := range g.Devices {
		s := d.Name
		if d.MemoryTotalMB != nil {
			s += fmt.Sprintf(" %.0f MB", *d.MemoryTotalMB)
		}
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}

// notable are the packages that agents ask for most.
var notable = []string{"numpy", "pandas", "matplotlib", "scipy", "scikit-learn", "torch", "tensorflow", "jax", "transformers", "xgboost", "opencv-python"}

func packageLine(have map[string]string) string {
	lower := map[string]string{}
	for name, version := range have {
		lower[strings.ToLower(name)] = version
	}
	var all []string
	for _, name := range notable {
		if v, ok := lower[name]; ok {
			all = append(all, name+" "+v)
		}
	}
	return ensureLine(strings.Join(all, ", "))
}
