package progress

import (
	"fmt"
	"time"
)

// Share returns how much of total is done: "37% of 2.1 GB". It is 100% only when
// everything is done.
func Share(done, total int64) string {
	if total <= 0 {
		return Bytes(done)
	}
	return fmt.Sprintf("%d%% of %s", int64(float64(done)/float64(total)*100), Bytes(total))
}

// Bytes returns n in the largest unit that keeps it above 1, with at least two digits:
// "980 B", "2.1 GB". Units are powers of 1000, as usual for disks and networks.
func Bytes(n int64) string {
	units := []string{"kB", "MB", "GB", "TB"}
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	v := float64(n) / 1000
	unit := 0
	for v >= 999.5 && unit < len(units)-1 {
		v /= 1000
		unit++
	}
	if v < 9.95 {
		return fmt.Sprintf("%.1f %s", v, units[unit])
	}
	return fmt.Sprintf("%.0f %s", v, units[unit])
}

// Seconds is Duration of a number of seconds.
func Seconds(s float64) string { return Duration(time.Duration(s * float64(time.Second))) }

// Duration returns d in its two largest units: "15 s", "3 min 20 s", "2 h 5 min".
func Duration(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 100*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
	return "over 100 h"
}
