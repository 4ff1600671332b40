package progress

import (
	"math"
	"testing"
	"time"
)

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

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 400 * time.Millisecond: "0 s", 59500 * time.Millisecond: "1 min 0 s",
		200 * time.Second: "3 min 20 s", 2*time.Hour + 5*time.Minute + 9*time.Second: "2 h 5 min", 1000 * time.Hour: "over 100 h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
