// Package probe describes the executor's machine: platform, processor, memory, GPU, TPU,
// disks, and the kernel's Python with its packages.
//
// It must not change anything, import a Python package, set up a GPU or wait without a
// limit, because a mounted Drive or a broken GPU driver may never answer. The caller adds
// what only a running kernel knows. Start reading at Prober.Probe.
package probe

import (
	"context"
	"io/fs"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"colabrelay/executor/account"
	"colabrelay/shared/contract"
)

// Config selects what a Prober inspects.
type Config struct {
	WorkDir string
	Python  string        // the kernel's interpreter
	User    *account.User // runs the kernel's code; nil means this process's user
	Started time.Time     // of the executor
	Getenv  func(string) string
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

// Probe inspects everything. Parts that can't be determined are empty; it fails only if ctx
// ends. The caller sets LoadedVariables.
func (p *Prober) Probe(ctx context.Context) (contract.Probe, error) {
	out := contract.Probe{
		Platform: p.platform(ctx),
		Compute:  compute(ctx),
		GPU:      gpu(ctx, p.cfg.User, p.root),
		TPU:      tpu(p.cfg.Getenv, p.root),
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
