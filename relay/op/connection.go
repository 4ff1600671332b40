package op

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/shared/contract"
)

type noArgs struct{ target }

// Connection is the answer of check_colab_connection, and of `colab-relay status` for each runtime.
type Connection struct {
	Status            string   `json:"status"` // connected, disconnected, or unknown without an address
	ColabURL          string   `json:"colab_url,omitempty"`
	UptimeMinutes     *float64 `json:"uptime_minutes,omitzero"`
	MemoryAvailableGB *float64 `json:"memory_available_gb,omitzero"`
	MemoryUsedPct     *float64 `json:"memory_used_pct,omitzero"`
	LatencyMS         *float64 `json:"latency_ms,omitzero"`     // round trip time of one signed request
	KernelStatus      string   `json:"kernel_status,omitempty"` // starting, idle, busy or dead
	Python            string   `json:"python,omitempty"`        // version
	Version           string   `json:"version,omitempty"`       // release of the executor
	RelayVersion      string   `json:"relay_version,omitempty"`
	SessionLeft       *float64 `json:"session_minutes_left,omitzero"` // estimated minutes until the VM ends, from the newest run or probe; absent if unknown

	// For `colab-relay doctor`.
	Kernel     contract.Kernel `json:"-"`
	InstanceID string          `json:"-"`
	Clock      time.Duration   `json:"-"` // how far the VM's is ahead, if the relay corrects it
}

// Connect asks the executor at url, which vm reaches, how it is. The signed request proves that both
// sides have the same secret. Strangers can use up the limit on unsigned requests, which must not
// make an executor seem unreachable.
func Connect(ctx context.Context, url string, vm *client.Client) (*Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, client.ReachLimit)
	defer cancel()
	got := &Connection{Status: "disconnected", ColabURL: url}
	health, err := vm.SignedHealth(ctx)
	if err != nil {
		return got, err
	}
	asked := time.Now()
	if got.Kernel, err = vm.Kernel(ctx); err != nil {
		return got, err
	}
	got.Status, got.KernelStatus, got.Python = "connected", string(got.Kernel.Status), got.Kernel.Python
	got.LatencyMS = round(float64(time.Since(asked).Microseconds())/1000, 100)
	got.Version, got.InstanceID, got.Clock = health.Version, vm.InstanceID(), vm.ClockOffset()
	got.UptimeMinutes, got.MemoryAvailableGB, got.MemoryUsedPct = &health.UptimeMinutes, &health.MemoryAvailableGB, &health.MemoryUsedPct
	return got, nil
}

// Reach is Connect for a paired runtime. transport is runtimes.Config.Transport, or nil.
func Reach(ctx context.Context, r pairing.Runtime, transport func(pairing.Runtime) http.RoundTripper) (*Connection, error) {
	if r.URL == "" {
		return &Connection{Status: "unknown"}, pairing.ErrNoAddress
	}
	cfg := client.Config{BaseURL: r.URL, Secret: r.Secret, Comeback: r.Comeback()}
	if r.Provider != "" && transport != nil {
		cfg.Transport = transport(r)
	}
	vm, err := client.New(cfg)
	if err != nil {
		return &Connection{Status: "disconnected", ColabURL: r.URL}, err
	}
	defer vm.Close()
	return Connect(ctx, r.URL, vm)
}

// PersonProblem is the error object of a command's answer; nil for no error.
func PersonProblem(err error) *Problem {
	if err == nil {
		return nil
	}
	return problemOf(err).withHint(hint.Of(err).Person)
}

func checkConnection() Operation {
	return operation(spec{
		title:       "Check the connection",
		description: "Use it at the start of a session and after connection errors: it says whether the VM answers, its uptime, free memory and kernel status, or what to do.",
	}, func(ctx context.Context, c *call, _ noArgs) (*Connection, error) {
		got, err := Connect(ctx, c.target.URL, c.target.Client)
		got.RelayVersion = c.cfg.Version
		if err != nil {
			return got, err
		}
		c.checkKernel(got.Kernel.KernelID)
		got.SessionLeft = c.minutesLeft(nil)
		return got, nil
	})
}

func (c *Connection) text(w *words) {
	fmt.Fprintf(w, "%s: %s\n", c.Status, c.ColabURL)
	if c.LatencyMS != nil {
		fmt.Fprintf(w, "%s\n", c.Summary())
	}
}

// Summary says in a line what answers.
func (c *Connection) Summary() string {
	return fmt.Sprintf("executor %s, up %s, %.1f GB of memory available (%.0f%% used), kernel %s (Python %s), latency %.0f ms",
		inline(c.Version), progress.Duration(time.Duration(*c.UptimeMinutes*float64(time.Minute))), *c.MemoryAvailableGB, *c.MemoryUsedPct, inline(c.KernelStatus), inline(c.Python), *c.LatencyMS)
}

// Probe is the answer of probe_colab_environment.
type Probe struct {
	contract.Probe
	PackageCount int `json:"package_count"`
}

func probeEnvironment() Operation {
	return operation(spec{
		title:       "Describe the VM",
		description: "Use it before planning work: CPU, memory, GPU, TPU, disks, Python packages with versions, limits, time left and loaded variables of the VM.",
		Command: Command{Group: "run",
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
