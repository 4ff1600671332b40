package probe

import (
	"fmt"

	"colabrelay/shared/contract"
)

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
