package probe

import (
	"context"

	"github.com/shirou/gopsutil/v3/cpu"
	"github.com/shirou/gopsutil/v3/load"

	"colabrelay/shared/contract"
)

func compute(ctx context.Context) contract.Compute {
	var out contract.Compute
	out.CPUCount, _ = cpu.CountsWithContext(ctx, true)
	if cpus, err := cpu.InfoWithContext(ctx); err == nil && len(cpus) > 0 {
		out.CPUModel = cpus[0].ModelName
	}
	if average, err := load.AvgWithContext(ctx); err == nil {
		out.Load1 = Round(average.Load1, 2)
	}
	if m, err := Memory(); err == nil {
		out.MemoryTotalGB, out.MemoryAvailableGB, out.MemoryUsedPct = InGB(m.Total), InGB(m.Available), m.UsedPct()
	}
	return out
}
