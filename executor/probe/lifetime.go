package probe

import (
	"context"
	"io/fs"
	"time"

	"colabrelay/shared/contract"
)

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
	seen := contract.Probe{Platform: Platform(p.cfg.Getenv, p.root), TPU: tpu(p.cfg.Getenv, p.root)}
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
