package progress

import (
	"math"
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	type note struct {
		at   time.Duration
		done int64
	}
	const mb = 1_000_000
	for name, c := range map[string]struct {
		notes []note
		total int64
		at    time.Duration
		want  string
	}{
		"just begun":                {[]note{{0, 0}}, 2100 * mb, 0, "0 % of 2.1 GB"},
		"too soon for a rate":       {[]note{{0, 0}, {900 * time.Millisecond, mb}}, 10 * mb, 900 * time.Millisecond, "10 % of 10 MB"},
		"under way":                 {[]note{{0, 0}, {10 * time.Second, 777 * mb}}, 2100 * mb, 10 * time.Second, "37 % of 2.1 GB, 78 MB/s, 17 s left"},
		"resumed bytes don't count": {[]note{{0, 90 * mb}, {2 * time.Second, 92 * mb}}, 100 * mb, 2 * time.Second, "92 % of 100 MB, 1.0 MB/s, 8 s left"},
		"only the last 10 s count":  {[]note{{0, 0}, {time.Second, 50 * mb}, {11 * time.Second, 60 * mb}, {12 * time.Second, 61 * mb}}, 100 * mb, 12 * time.Second, "61 % of 100 MB, 1.0 MB/s, 39 s left"},
		"a stall slows it down":     {[]note{{0, 0}, {time.Second, 10 * mb}}, 20 * mb, 10 * time.Second, "50 % of 20 MB, 1.0 MB/s, 10 s left"},
		"begun anew":                {[]note{{0, 0}, {time.Second, 10 * mb}, {2 * time.Second, 0}, {4 * time.Second, 2 * mb}}, 20 * mb, 4 * time.Second, "10 % of 20 MB, 1.0 MB/s, 18 s left"},
		"done":                      {[]note{{0, 0}, {2 * time.Second, 10 * mb}}, 10 * mb, 2 * time.Second, "100 % of 10 MB"},
		"nearly done is not done":   {[]note{{0, 999}}, 1000, 0, "99 % of 1.0 kB"},
		"empty":                     {[]note{{0, 0}}, 0, time.Minute, "0 B"},
		"nothing noted":             {nil, 0, time.Minute, "0 B"},
	} {
		var m Meter
		for _, n := range c.notes {
			m.Note(n.done, c.total, begin.Add(n.at))
		}
		if got := m.Words(begin.Add(c.at)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 9949: "9.9 kB", 9950: "10 kB", 999_499: "999 kB", 999_500: "1.0 MB",
		2_147_483_648: "2.1 GB", 5e12: "5.0 TB", math.MaxInt64: "9223372 TB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestTime(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 400 * time.Millisecond: "0 s", 59500 * time.Millisecond: "1 min 0 s",
		200 * time.Second: "3 min 20 s", 2*time.Hour + 5*time.Minute + 9*time.Second: "2 h 5 min", 1000 * time.Hour: "over 100 h",
	} {
		if got := Time(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

func TestAMeterStaysSmall(t *testing.T) {
	var m Meter
	now := time.Unix(0, 0)
	for i := range int64(100_000) {
		now = now.Add(time.Millisecond * 50)
		m.Note(i, 100_000, now)
	}
	if n := len(m.samples); n > int(window/step)+2 {
		t.Errorf("%d samples are kept", n)
	}
}
