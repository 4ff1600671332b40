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

// inspectSession tells a GPU from its device files: nvidia-smi takes a second, or
// longer where the driver is broken.
func (p *Prober) inspectSession() session {
	seen := contract.Probe{Platform: Platform(p.cfg.Getenv, p.root), TPU: tpu(p.cfg.Getenv, p.root)}
	devices, _ := fs.Glob(p.root, "dev/nvidia[0-9]*")
	seen.GPU.Available = len(devices) > 0
	return session{start: sessionStart(context.Background(), p.cfg.Started), limit: publishedLimit(seen)}
}

// sessionLimit is how long a platform lets a session live, as it publishes it.
type sessionLimit struct {
	most  time.Duration // 0 where none is published
	words string        // how sure that is
}

// publishedLimit is an upper bound: each platform ends sessions sooner when they
// idle, and Colab's paid plans live longer, which can't be told from inside.
func publishedLimit(p contract.Probe) sessionLimit {
	switch {
	case p.Platform.Name == colab:
		return sessionLimit{12 * time.Hour, "Colab ends a free session after at most 12 hours, and an idle one " +
			"sooner (how soon is not published); paid plans may last longer"}
	case p.Platform.Name == kaggle && (p.GPU.Available || p.TPU.Available):
		return sessionLimit{9 * time.Hour, "Kaggle ends a session with a GPU or TPU after at most 9 hours, and an idle one sooner"}
	case p.Platform.Name == kaggle:
		return sessionLimit{12 * time.Hour, "Kaggle ends a session after at most 12 hours, and an idle one sooner"}
	}
	return sessionLimit{}
}

// left is the minutes left at most, nil where no limit is published.
func (l sessionLimit) left(uptime time.Duration) *float64 {
	if l.most == 0 {
		return nil
	}
	minutes := round(max(0, l.most-uptime).Minutes(), 1)
	return &minutes
}
