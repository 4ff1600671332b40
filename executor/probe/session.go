package probe

import (
	"context"
	"io/fs"
	"time"

	"colabrelay/shared/contract"
)

// session is how long the machine has lived, and may.
type session struct {
	start time.Time
	limit sessionLimit
}

// SessionMinutesLeft estimates how long the machine still lives from the limit its
// platform publishes; nil where there is none, and where the machine has outlived
// it, which proves that another one holds. It looks at the machine once only and
// starts no program, so that every answer can tell it.
func (p *Prober) SessionMinutesLeft() *float64 {
	s := p.session()
	uptime := time.Since(s.start)
	if uptime >= s.limit.most {
		return nil
	}
	return s.limit.left(uptime)
}

// lookAtSession tells a GPU from its device files: nvidia-smi takes a second, or
// longer where the driver is broken.
func (p *Prober) lookAtSession() session {
	seen := contract.Probe{Platform: Platform(p.cfg.Getenv, p.root), TPU: tpu(p.cfg.Getenv, p.root)}
	devices, _ := fs.Glob(p.root, "dev/nvidia[0-9]*")
	seen.GPU.Available = len(devices) > 0
	return session{start: sessionStart(context.Background(), p.cfg.Started), limit: publishedLimit(seen)}
}
