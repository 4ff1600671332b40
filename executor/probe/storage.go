package probe

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/shirou/gopsutil/v3/disk"

	"colabrelay/shared/contract"
)

const (
	driveMount = "/content/drive/MyDrive"
	diskLimit  = 2 * time.Second // a Drive whose mount hangs never answers
)

// storage describes the file systems of the working directory, of temporary files and of a
// mounted Drive.
func (p *Prober) storage(ctx context.Context) []contract.Disk {
	paths := []string{p.cfg.WorkDir, os.TempDir(), driveMount}
	disks := []contract.Disk{}
	for i, path := range paths {
		if path == "" || slices.Contains(paths[:i], path) {
			continue
		}
		if d, ok := p.disk(ctx, path); ok {
			disks = append(disks, d)
		}
	}
	return disks
}

// disk runs at most one query for each path. If one hangs, later calls join it.
func (p *Prober) disk(ctx context.Context, path string) (contract.Disk, bool) {
	answer := p.usage.DoChan(path, func() (any, error) { return disk.Usage(path) })
	limit := time.NewTimer(diskLimit)
	defer limit.Stop()
	select {
	case r := <-answer:
		if r.Err != nil {
			return contract.Disk{}, false
		}
		u := r.Val.(*disk.UsageStat)
		return contract.Disk{Path: path, TotalGB: InGB(u.Total), FreeGB: InGB(u.Free), UsedPct: Round(u.UsedPercent, 1)}, true
	case <-limit.C:
	case <-ctx.Done():
	}
	return contract.Disk{}, false
}
