package audit

import (
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/smalldisk"
	"colabrelay/shared/tier"
)

func TestAFullDiskStopsNothingAndWhatItCostIsCounted(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 2)
	if disk == "" {
		return
	}
	cfg := config(t)
	cfg.Path = filepath.Join(disk, "audit.log")
	cfg.Limits.QueueBytes = 64 << 10
	filler := filepath.Join(disk, "filler")
	const n = 5000
	got := fails(t, cfg, n, func() { smalldisk.Fill(t, filler) }, func() { must(t, os.Remove(filler)) })
	if omitted := count(t, got, n+1); omitted == 0 || omitted > n { // the submission is omitted too
		t.Errorf("%d of %d records are omitted", omitted, n)
	}
}
