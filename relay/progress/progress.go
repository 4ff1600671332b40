// Package progress describes in words how much of a transfer is done, how fast it is
// and how long it will still take: "37% of 2.1 GB, 85 MB/s, 15 s left".
//
// It only measures and describes: it moves no bytes and writes nowhere. Start reading
// at Meter.
package progress

import (
	"fmt"
	"sync"
	"time"

	"colabrelay/relay/transfer"
)

// stalled is how long nothing may move before Describe says so.
const stalled = 5 * time.Second

// Meter records the reports of one transfer and describes the newest one. Its zero value
// is ready to use, and its methods may be called from several goroutines.
type Meter struct {
	mu      sync.Mutex
	last    transfer.Progress
	at      time.Time // of the last sign of the VM; zero before the first
	left    time.Time // when bytes left for it last
	samples []sample  // at most window/step + 2
}

type sample struct {
	at   time.Time
	done int64
}

// How the rate is measured.
const (
	window = 10 * time.Second       // the rate is the average over this time
	step   = 250 * time.Millisecond // between two samples
	soon   = time.Second            // with less time measured, a rate would be a guess
)

// Report records a report. It can serve as the Report of transfer.Options. The bytes of the first
// one were moved earlier and do not count towards the rate, nor do those before a decrease, as
// when a file starts again.
func (m *Meter) Report(p transfer.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, before := time.Now(), m.last
	if m.last = p; p.Left != before.Left {
		m.left = now
		return
	}
	m.at = now
	if p.Done < before.Done {
		m.samples = nil
	}
	if n := len(m.samples); n == 0 || now.Sub(m.samples[n-1].at) >= step {
		m.samples = append(m.samples, sample{now, p.Done})
	}
	for len(m.samples) > 1 && now.Sub(m.samples[1].at) >= window {
		m.samples = m.samples[1:]
	}
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
	line := m.share(now)
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

// share returns what is done and, once they are known, the rate and the time left.
func (m *Meter) share(now time.Time) string {
	line := Share(m.last.Done, m.last.Total)
	if len(m.samples) == 0 || now.Sub(m.samples[0].at) < soon {
		return line
	}
	speed := float64(m.last.Done-m.samples[0].done) / now.Sub(m.samples[0].at).Seconds()
	if speed <= 0 || m.last.Done >= m.last.Total {
		return line
	}
	return fmt.Sprintf("%s, %s/s, %s left", line, Bytes(int64(speed)), Seconds(float64(m.last.Total-m.last.Done)/speed))
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
