package probe

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/shirou/gopsutil/v3/mem"
)

// Mem is the memory that executor and kernel share, in bytes.
type Mem struct {
	Total, Used, Available uint64
}

// UsedPct is the used part of the memory in percent, or 0 if the total is unknown.
func (m Mem) UsedPct() float64 {
	if m.Total == 0 {
		return 0
	}
	return Round(100*float64(m.Used)/float64(m.Total), 1)
}

// Memory is the memory of the machine, or of the control group of this process if it has a
// limit. Page cache that can be reclaimed counts as available.
func Memory() (Mem, error) { return memory(os.DirFS("/")) }

func memory(root fs.FS) (Mem, error) {
	v, err := mem.VirtualMemory()
	if err != nil {
		return Mem{}, fmt.Errorf("reading the machine's memory: %w", err)
	}
	machine := Mem{Total: v.Total, Used: v.Total - min(v.Total, v.Available), Available: v.Available}
	return machine.within(cgroups(root)), nil
}

// within applies the limits of groups to m. The tightest one counts.
func (m Mem) within(groups []cgroup) Mem {
	for _, g := range groups {
		if g.limit >= m.Total && g.limit-min(g.limit, g.used) >= m.Available {
			continue
		}
		available := min(m.Available, g.limit-min(g.limit, g.used))
		m = Mem{Total: min(m.Total, g.limit), Available: available}
		m.Used = m.Total - min(m.Total, available)
	}
	return m
}
