// Package probe says what the executor's machine is: platform, processor,
// memory, GPU, TPU, disks, and the kernel's Python with its packages.
//
// It only looks: it must not import a Python package, set up a GPU or wait for
// anything without a limit, since a mounted Drive and a broken GPU driver both
// may never answer. What a live kernel knows is left to the caller. Start
// reading at Prober.Probe.
package probe

import (
	"context"
	"io/fs"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"colabrelay/shared/contract"
)

// Config says what to look at.
type Config struct {
	WorkDir string
	Python  string    // the kernel's interpreter
	Started time.Time // of the executor
	Getenv  func(string) string
	Limits  contract.Limits // told as they are; SessionMinutesLeft is filled in
}

// Prober looks at one machine. Its methods may be called at once from many
// goroutines.
type Prober struct {
	cfg     Config
	root    fs.FS
	python  pythonFacts
	usage   singleflight.Group // a look at a disk that never ends is begun once only
	session func() session     // once: it does not change
}

// New makes a Prober; it starts nothing.
func New(cfg Config) *Prober {
	p := &Prober{cfg: cfg, root: os.DirFS("/")}
	p.session = sync.OnceValue(p.inspectSession)
	return p
}

// Probe looks at everything. It fails only when ctx ends: a part that can't be
// found out stays empty. LoadedVariables is left to the caller.
func (p *Prober) Probe(ctx context.Context) (contract.Probe, error) {
	out := contract.Probe{
		Platform: p.platform(ctx),
		Compute:  compute(ctx),
		GPU:      gpu(ctx, p.root),
		TPU:      tpu(p.cfg.Getenv, p.root),
		Storage:  p.storage(ctx),
		Limits:   p.cfg.Limits,
	}
	out.Python, out.Packages = p.pythonAndPackages(ctx)
	uptime := time.Since(sessionStart(ctx, p.cfg.Started))
	out.SessionUptimeMinutes = round(uptime.Minutes(), 1)
	published := publishedLimit(out)
	out.Limits.SessionMinutesLeft = published.left(uptime)
	out.Recommendations = recommendations(out, published)
	return out, ctx.Err()
}

const gb = 1 << 30

// inGB is bytes in GiB with two digits.
func inGB(bytes uint64) float64 { return round(float64(bytes)/gb, 2) }

func round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}
