package progress

import (
	"testing"
	"time"
)

func TestDescribeRate(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	type record struct {
		at   time.Duration
		done int64
	}
	const mb = 1_000_000
	for name, c := range map[string]struct {
		records []record
		total   int64
		at      time.Duration
		want    string
	}{
		"under way":                 {[]record{{0, 0}, {10 * time.Second, 777 * mb}}, 2100 * mb, 10 * time.Second, "37% of 2.1 GB, 78 MB/s, 17 s left"},
		"resumed bytes don't count": {[]record{{0, 90 * mb}, {2 * time.Second, 92 * mb}}, 100 * mb, 2 * time.Second, "92% of 100 MB, 1.0 MB/s, 8 s left"},
		"only the last 10 s count":  {[]record{{0, 0}, {time.Second, 50 * mb}, {11 * time.Second, 60 * mb}, {12 * time.Second, 61 * mb}}, 100 * mb, 12 * time.Second, "61% of 100 MB, 1.0 MB/s, 39 s left"},
		"done":                      {[]record{{0, 0}, {2 * time.Second, 10 * mb}}, 10 * mb, 2 * time.Second, "100% of 10 MB"},
		"nearly done is not done":   {[]record{{0, 999}}, 1000, 0, "99% of 1.0 kB"},
	} {
		var r rate
		for _, n := range c.records {
			r.record(n.done, c.total, begin.Add(n.at))
		}
		if got := r.describe(begin.Add(c.at)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
