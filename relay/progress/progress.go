// Package pace tells in words how far a transfer is, how fast it goes and how
// long it still takes: "37 % of 2.1 GB, 85 MB/s, 15 s left".
//
// It measures and words, no more: it moves no bytes and writes to nobody.
// Start reading at Teller.
package progress

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// How the rate is measured.
const (
	window = 10 * time.Second       // the rate is that of this last time
	step   = 250 * time.Millisecond // between two samples kept
	soon   = time.Second            // before that a rate would be a guess
)

// Meter measures one transfer. Its zero value is ready, its methods may be
// called from several goroutines.
type Meter struct {
	mu          sync.Mutex
	samples     []sample // at most window/step and two
	done, total int64
}

type sample struct {
	at   time.Time
	done int64
}

// Note takes how many of total bytes are there. What is there at the first Note
// was there before and counts for no rate; so it is when done falls, as it does
// when a file is begun anew.
func (m *Meter) Note(done, total int64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if done < m.done {
		m.samples = m.samples[:0]
	}
	m.done, m.total = done, total
	if n := len(m.samples); n == 0 || now.Sub(m.samples[n-1].at) >= step {
		m.samples = append(m.samples, sample{now, done})
	}
	old := 0
	for old < len(m.samples)-1 && now.Sub(m.samples[old+1].at) >= window {
		old++
	}
	m.samples = append(m.samples[:0], m.samples[old:]...)
}

// Words tells where the transfer stands. Rate and time left appear once they
// are known.
func (m *Meter) Words(now time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	parts := []string{Share(m.done, m.total)}
	rate := m.rate(now)
	if rate > 0 && m.done < m.total {
		left := time.Duration(float64(m.total-m.done) / rate * float64(time.Second))
		parts = append(parts, Bytes(int64(rate))+"/s", Time(left)+" left")
	}
	return strings.Join(parts, ", ")
}

// rate is in bytes a second, 0 while it is not known.
func (m *Meter) rate(now time.Time) float64 {
	if len(m.samples) == 0 || now.Sub(m.samples[0].at) < soon {
		return 0
	}
	return float64(m.done-m.samples[0].done) / now.Sub(m.samples[0].at).Seconds()
}

// Share is how much of total is done: "37 % of 2.1 GB". Only what is complete
// is 100 %.
func Share(done, total int64) string {
	if total <= 0 {
		return Bytes(done)
	}
	return fmt.Sprintf("%d %% of %s", int64(float64(done)/float64(total)*100), Bytes(total))
}

// Bytes is n in the largest unit that keeps it above 1, with two digits or more:
// "980 B", "2.1 GB". Units are powers of 1000, as those of disks and networks.
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

// Time is d in its two largest units: "15 s", "3 min 20 s", "2 h 5 min".
func Time(d time.Duration) string {
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
