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
