package probe

import (
	"fmt"
	"time"

	"colabrelay/shared/contract"
)

// Below these, in GB, a user is told.
const (
	lowMemoryGB = 2
	lowDiskGB   = 5
)

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

// recommendations are plain sentences about what may get in the user's way.
func recommendations(p contract.Probe, limit sessionLimit) []string {
	advice := []string{}
	add := func(format string, args ...any) { advice = append(advice, fmt.Sprintf(format, args...)) }
	if !p.GPU.Available && !p.TPU.Available {
		where := ""
		switch p.Platform.Name {
		case colab:
			where = "; Runtime > Change runtime type gives one, and a new VM"
		case kaggle:
			where = "; Settings > Accelerator gives one, and a new VM"
		}
		add("No GPU here: train small models, or use a machine with one%s.", where)
	}
	for _, d := range p.GPU.Devices {
		if d.MemoryUsedMB != nil && d.MemoryTotalMB != nil && *d.MemoryUsedMB > 0.9**d.MemoryTotalMB {
			add("The memory of GPU %s is nearly full (%.0f of %.0f MB): free tensors, or call cleanup.", d.Name, *d.MemoryUsedMB, *d.MemoryTotalMB)
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
		add("%s: save what matters outside this machine.", limit.words)
	}
	return advice
}
