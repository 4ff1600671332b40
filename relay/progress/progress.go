// Package progress describes in words how much of a transfer is done, how fast it is
// and how long it will still take: "37% of 2.1 GB, 85 MB/s, 15 s left".
//
// It only measures and describes: it moves no bytes and writes nowhere. Start reading
// at Meter.
package progress

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/transfer"
)

// stalled is how long nothing may move before Describe says so.
const stalled = 5 * time.Second

// Meter records the reports of one transfer and describes the newest one. Its zero value
// is ready to use, and its methods may be called from several goroutines.
type Meter struct {
	mu   sync.Mutex
	rate rate
	last transfer.Progress
	at   time.Time // of the last sign of the VM; zero before the first
	left time.Time // when bytes left for it last
}

// Report records a report. It can serve as the Report of transfer.Options.
func (m *Meter) Report(p transfer.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	leaving := p.Left != m.last.Left
	if m.last = p; leaving {
		m.left = time.Now()
		return
	}
	m.at = time.Now()
	m.rate.record(p.Done, p.Total, m.at)
}

// Last returns the newest report and the time of the last one but of bytes that left, which is zero
// before the first one.
func (m *Meter) Last() (transfer.Progress, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, m.at
}

// Describe returns one line on the transfer: "3 of 12 files, 37% of 2.1 GB, 85 MB/s,
// 15 s left".
func (m *Meter) Describe(now time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, at := m.last, m.at
	if at.IsZero() {
		return "waiting for the VM's first answer"
	}
	line := m.rate.describe(now)
	if p.Files > 1 {
		line = fmt.Sprintf("%d of %d files, %s", p.File, p.Files, line)
	}
	still := now.Sub(at) > stalled
	switch {
	case p.Stage == transfer.StageHashing:
		return "computing the checksum: " + hashed(p)
	case p.Stage == transfer.StageChecking:
		return "verifying the checksum: " + hashed(p)
	case still && p.Done >= p.Total:
		return line + ", the VM is verifying the checksum"
	case still && now.Sub(m.left) <= stalled:
		return fmt.Sprintf("%s, sending, nothing confirmed for %s", line, Duration(now.Sub(at)))
	case still:
		return fmt.Sprintf("%s, nothing moved for %s", line, Duration(now.Sub(at)))
	}
	return line
}

// hashed describes how much of a file was read. The size of one file among several is
// not known here.
func hashed(p transfer.Progress) string {
	if p.Files > 1 {
		return fmt.Sprintf("%s, %d of %d files", Bytes(p.Hashed), p.File, p.Files)
	}
	return Share(p.Hashed, p.Total)
}

// How the rate is measured.
const (
	window = 10 * time.Second       // the rate is the average over this time
	step   = 250 * time.Millisecond // between two samples
	soon   = time.Second            // with less time measured, a rate would be a guess
)

// rate measures how fast one transfer is. Its zero value is ready to use.
type rate struct {
	samples     []sample // at most window/step + 2
	done, total int64
}

type sample struct {
	at   time.Time
	done int64
}

// record sets how many of total bytes are done. The bytes of the first call were moved
// earlier and do not count towards the rate. The same applies when done decreases, as it
// does when a file restarts.
func (r *rate) record(done, total int64, now time.Time) {
	if done < r.done {
		r.samples = r.samples[:0]
	}
	r.done, r.total = done, total
	if n := len(r.samples); n == 0 || now.Sub(r.samples[n-1].at) >= step {
		r.samples = append(r.samples, sample{now, done})
	}
	old := 0
	for old < len(r.samples)-1 && now.Sub(r.samples[old+1].at) >= window {
		old++
	}
	r.samples = append(r.samples[:0], r.samples[old:]...)
}

// describe returns the share that is done and, once they are known, the rate and the time
// left.
func (r *rate) describe(now time.Time) string {
	parts := []string{Share(r.done, r.total)}
	if speed := r.perSecond(now); speed > 0 && r.done < r.total {
		left := time.Duration(float64(r.total-r.done) / speed * float64(time.Second))
		parts = append(parts, Bytes(int64(speed))+"/s", Duration(left)+" left")
	}
	return strings.Join(parts, ", ")
}

// perSecond returns the rate in bytes, or 0 while it is unknown.
func (r *rate) perSecond(now time.Time) float64 {
	if len(r.samples) == 0 || now.Sub(r.samples[0].at) < soon {
		return 0
	}
	return float64(r.done-r.samples[0].done) / now.Sub(r.samples[0].at).Seconds()
}

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
