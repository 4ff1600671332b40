package probe

import (
	"fmt"

	"colabrelay/shared/contract"
)

// Below these, in GB, a user is told.
const (
	lowMemoryGB = 2
	lowDiskGB   = 5
)

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
