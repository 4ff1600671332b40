package progress

import (
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/transfer"
)

func TestDescribe(t *testing.T) {
	const mb = 1_000_000
	moving := transfer.StageMoving
	for name, c := range map[string]struct {
		reports []transfer.Progress // a second apart
		after   time.Duration       // the last one
		want    string
	}{
		"one file": {[]transfer.Progress{{Stage: moving, Total: 10 * mb, Files: 1}, {Stage: moving, Done: 2 * mb, Total: 10 * mb, Files: 1}}, 0, "20% of 10 MB, 2.0 MB/s, 4 s left"},
		"a folder": {[]transfer.Progress{{Stage: moving, Done: 2 * mb, Total: 10 * mb, File: 3, Files: 12}}, 0, "3 of 12 files, 20% of 10 MB"},
		"a stall":  {[]transfer.Progress{{Stage: moving, Done: 2 * mb, Total: 10 * mb, Files: 1}}, 12 * time.Second, "20% of 10 MB, nothing moved for 12 s"},
		"leaving":  {[]transfer.Progress{{Stage: moving, Done: 2 * mb, Total: 10 * mb, Files: 1}, {Stage: moving, Done: 2 * mb, Total: 10 * mb, Files: 1, Left: 9 * mb}}, 5 * time.Second, "20% of 10 MB, sending, nothing confirmed for 6 s"},
		"after":    {[]transfer.Progress{{Stage: transfer.StageChecking, Hashed: 5 * mb, Done: 10 * mb, Total: 10 * mb, Files: 1}}, 0, "verifying the checksum: 50% of 10 MB"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var meter Meter
			for i, p := range c.reports {
				if i > 0 {
					<-time.After(time.Second)
				}
				meter.Report(p)
			}
			if got := meter.Describe(time.Now().Add(c.after)); got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		})
	}
}
