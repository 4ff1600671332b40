// Package probe describes the executor's machine: platform, processor, memory, GPU, TPU,
// disks, and the kernel's Python with its packages.
//
// It must not change anything, import a Python package, set up a GPU or wait without a
// limit, because a mounted Drive or a broken GPU driver may never answer. The caller adds
// what only a running kernel knows. Start reading at Prober.Probe.
package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v3/host"
	"github.com/shirou/gopsutil/v3/process"
	"golang.org/x/sync/singleflight"

	"colabrelay/executor/account"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// Config selects what a Prober inspects.
type Config struct {
	WorkDir string
	Python  string          // the kernel's interpreter
	User    *account.User   // runs the kernel's code; nil means this process's user
	Started time.Time       // of the executor
	Environ []string        // of the kernel, without secrets
	Limits  contract.Limits // reported unchanged, with SessionMinutesLeft added
}

// Prober inspects a machine. It is safe for concurrent use.
type Prober struct {
	cfg     Config
	root    fs.FS
	python  pythonFacts
	usage   singleflight.Group // disk queries, so that one that hangs is not repeated
	session func() session     // computed once, because it does not change
}

// New makes a Prober; it starts nothing.
func New(cfg Config) *Prober {
	p := &Prober{cfg: cfg, root: os.DirFS("/")}
	p.session = sync.OnceValue(p.inspectSession)
	return p
}

// getenv is os.Getenv of the kernel.
func (p *Prober) getenv(name string) string {
	for _, entry := range p.cfg.Environ {
		if key, value, _ := strings.Cut(entry, "="); key == name {
			return value
		}
	}
	return ""
}

// Probe inspects everything. Parts that can't be determined are empty; it fails only if ctx
// ends. The caller sets LoadedVariables.
func (p *Prober) Probe(ctx context.Context) (contract.Probe, error) {
	out := contract.Probe{
		Platform: p.platform(ctx),
		Compute:  compute(ctx),
		GPU:      gpu(ctx, p.cfg.User, p.root),
		TPU:      tpu(p.getenv, p.root),
		Storage:  p.storage(ctx),
		Limits:   p.cfg.Limits,
	}
	out.Python, out.Packages = p.pythonAndPackages(ctx)
	uptime := time.Since(sessionStart(ctx, p.cfg.Started))
	out.SessionUptimeMinutes = Round(uptime.Minutes(), 1)
	published := publishedLimit(out)
	out.Limits.SessionMinutesLeft = published.left(uptime)
	out.Recommendations = recommendations(out, published)
	return out, ctx.Err()
}

const gb = 1 << 30

// InGB converts bytes to GiB with two decimals.
func InGB(bytes uint64) float64 { return Round(float64(bytes)/gb, 2) }

// Round rounds x to so many decimals.
func Round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}

// Names of platforms.
const (
	colab      = "colab"
	kaggle     = "kaggle"
	lightning  = "lightning"
	sageMaker  = "sagemaker"
	codespaces = "codespaces"
	runPod     = "runpod"
	container  = "container"
	machine    = "machine"
)

// Platform detects the platform from the environment and the files under root. It sets only
// Name and Container. Kaggle is checked first, because google.colab can be imported there
// too, and containers last, because most platforms run in one.
func Platform(getenv func(string) string, root fs.FS) contract.Platform {
	has := func(name string) bool { _, err := fs.Stat(root, name); return err == nil }
	contained := has(".dockerenv") || has("run/.containerenv") || getenv("KUBERNETES_SERVICE_HOST") != ""
	is := func(name string) contract.Platform {
		return contract.Platform{Name: name, Container: contained}
	}
	switch {
	case getenv("KAGGLE_KERNEL_RUN_TYPE") != "":
		return is(kaggle)
	case has("var/colab/hostname") || getenv("COLAB_RELEASE_TAG") != "":
		return is(colab)
	case getenv("LIGHTNING_CLOUDSPACE_HOST") != "":
		return is(lightning)
	case getenv("SAGEMAKER_APP_TYPE") != "" || has("home/studio-lab-user"):
		return is(sageMaker)
	case getenv("CODESPACES") == "true":
		return is(codespaces)
	case getenv("RUNPOD_POD_ID") != "":
		return is(runPod)
	case contained:
		return is(container)
	}
	return is(machine)
}

func (p *Prober) platform(ctx context.Context) contract.Platform {
	out := Platform(p.getenv, p.root)
	if info, err := host.InfoWithContext(ctx); err == nil {
		out.Hostname, out.Kernel, out.Architecture = info.Hostname, info.KernelVersion, info.KernelArch
		out.OS = info.OS
		if info.Platform != "" {
			out.OS = info.Platform + " " + info.PlatformVersion
		}
	}
	return out
}

// sessionStart is when the first process of the machine or container started. If that can't
// be determined, it is when the executor started.
func sessionStart(ctx context.Context, executor time.Time) time.Time {
	first, err := process.NewProcessWithContext(ctx, 1)
	if err != nil {
		return executor
	}
	ms, err := first.CreateTimeWithContext(ctx)
	if start := time.UnixMilli(ms); err == nil && start.Before(executor) {
		return start
	}
	return executor
}

// session is when the machine started and how long it may run.
type session struct {
	start time.Time
	limit sessionLimit
}

// SessionMinutesLeft estimates the rest of the session from the limit that the platform
// publishes. It is nil if there is none, or if the machine has run for longer, which means
// that another limit applies. It inspects the machine only once and starts no program, so
// that it can be part of every answer.
func (p *Prober) SessionMinutesLeft() *float64 {
	s := p.session()
	uptime := time.Since(s.start)
	if uptime >= s.limit.most {
		return nil
	}
	return s.limit.left(uptime)
}

// inspectSession detects a GPU by its device files, because nvidia-smi takes a second, or
// longer if the driver is broken.
func (p *Prober) inspectSession() session {
	seen := contract.Probe{Platform: Platform(p.getenv, p.root), TPU: tpu(p.getenv, p.root)}
	devices, _ := fs.Glob(p.root, "dev/nvidia[0-9]*")
	seen.GPU.Available = len(devices) > 0
	return session{start: sessionStart(context.Background(), p.cfg.Started), limit: publishedLimit(seen)}
}

// sessionLimit is the published limit of a platform's sessions.
type sessionLimit struct {
	most        time.Duration // 0 if none is published
	description string        // the limit and its exceptions, for a person
}

// publishedLimit is an upper bound. Each platform ends idle sessions sooner. Sessions of
// Colab's paid plans may run longer, but can't be distinguished.
func publishedLimit(p contract.Probe) sessionLimit {
	switch {
	case p.Platform.Name == colab:
		return sessionLimit{12 * time.Hour, "Colab ends a free session after at most 12 hours, and an idle one " +
			"sooner (how soon is not published); sessions of paid plans may last longer"}
	case p.Platform.Name == kaggle && (p.GPU.Available || p.TPU.Available):
		return sessionLimit{9 * time.Hour, "Kaggle ends a session with a GPU or TPU after at most 9 hours, and an idle one sooner"}
	case p.Platform.Name == kaggle:
		return sessionLimit{12 * time.Hour, "Kaggle ends a session after at most 12 hours, and an idle one sooner"}
	}
	return sessionLimit{}
}

// left is the maximum number of minutes left, or nil if no limit is published.
func (l sessionLimit) left(uptime time.Duration) *float64 {
	if l.most == 0 {
		return nil
	}
	minutes := Round(max(0, l.most-uptime).Minutes(), 1)
	return &minutes
}

// Below these values, in GB, the user is warned.
const (
	lowMemoryGB = 2
	lowDiskGB   = 5
)

// recommendations are sentences about limits that the user may run into.
func recommendations(p contract.Probe, limit sessionLimit) []string {
	advice := []string{}
	add := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	if !p.GPU.Available && !p.TPU.Available {
		where := ""
		switch p.Platform.Name {
		case colab:
			where = "; to get one, choose Runtime > Change runtime type > T4 GPU in the notebook, which starts a new VM"
		case kaggle:
			where = "; to get one, choose Settings > Accelerator in the notebook, which starts a new VM"
		}
		add("This machine has no GPU: train small models, or use a machine with a GPU%s.", where)
	}
	for _, d := range p.GPU.Devices {
		if d.MemoryUsedMB != nil && d.MemoryTotalMB != nil && *d.MemoryUsedMB > 0.9**d.MemoryTotalMB {
			add("The memory of GPU %s is nearly full (%.0f of %.0f MB): delete tensors, or call cleanup.", d.Name, *d.MemoryUsedMB, *d.MemoryTotalMB)
		}
	}
	if c := p.Compute; c.MemoryTotalGB > 0 && c.MemoryAvailableGB < lowMemoryGB {
		add("Only %.1f GB of memory is available: read data in chunks, delete what you no longer need, or call cleanup.", c.MemoryAvailableGB)
	}
	for _, d := range p.Storage {
		if d.FreeGB < lowDiskGB {
			add("Only %.1f GB of disk is free under %s.", d.FreeGB, d.Path)
		}
	}
	if limit.most > 0 {
		add("%s: save important results outside this machine.", limit.description)
	}
	return advice
}

// pythonLimit is how long listing the packages may take. A thousand packages on a cold disk
// take seconds.
const pythonLimit = 10 * time.Second

// pythonFacts caches the answer of packages.py until a folder changes that it searched.
type pythonFacts struct {
	mu      sync.Mutex
	facts   pythonAnswer
	changed map[string]time.Time
}

type pythonAnswer struct {
	Python   contract.Python   `json:"python"`
	Packages map[string]string `json:"packages"`
	Paths    []string          `json:"paths"`
}

// pythonAndPackages has only the interpreter's path if Python can't be queried.
func (p *Prober) pythonAndPackages(ctx context.Context) (contract.Python, map[string]string) {
	f := &p.python
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil || !maps.Equal(f.changed, changeTimes(f.facts.Paths)) {
		facts, err := p.queryPython(ctx)
		if err != nil {
			return contract.Python{Executable: p.cfg.Python}, map[string]string{}
		}
		f.facts, f.changed = facts, changeTimes(facts.Paths)
	}
	return f.facts.Python, maps.Clone(f.facts.Packages)
}

func (p *Prober) queryPython(ctx context.Context) (pythonAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, pythonLimit)
	defer cancel()
	out, err := p.cfg.User.RunPython(ctx, p.cfg.Python, kernelpy.Script("packages"), append(slices.Clone(p.cfg.Environ), "PYTHONIOENCODING=utf-8"))
	if err != nil {
		return pythonAnswer{}, fmt.Errorf("listing the packages of %q: %w", p.cfg.Python, err)
	}
	var answer pythonAnswer
	if err := json.Unmarshal(out, &answer); err != nil {
		return pythonAnswer{}, fmt.Errorf("reading the packages of %q: %w", p.cfg.Python, err)
	}
	return answer, nil
}

func changeTimes(paths []string) map[string]time.Time {
	times := make(map[string]time.Time, len(paths))
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			times[path] = info.ModTime()
		}
	}
	return times
}
