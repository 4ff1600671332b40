package progress

import (
	"fmt"
	"sync"
	"time"

	"colabrelay/relay/transfer"
)

// stalled is how long nothing may move before that is what is told.
const stalled = 5 * time.Second

// Teller words what a transfer reports. Its zero value is ready, its methods may
// be called from several goroutines.
type Teller struct {
	meter Meter
	mu    sync.Mutex
	last  transfer.Progress
	at    time.Time // of last; zero before the first
}

// Report takes a report; it fits transfer.Options.
func (t *Teller) Report(p transfer.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.at = p, time.Now()
	t.meter.Note(p.Done, p.Total, t.at)
}

// Last is the newest report and when it came; the zero time means none yet.
func (t *Teller) Last() (transfer.Progress, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last, t.at
}

// Line tells where the transfer stands: "3 of 12 files, 37 % of 2.1 GB, 85 MB/s,
// 15 s left".
func (t *Teller) Line(now time.Time) string {
	p, at := t.Last()
	if at.IsZero() {
		return "asking the VM"
	}
	line := t.meter.Words(now)
	if p.Files > 1 {
		line = fmt.Sprintf("%d of %d files, %s", p.File, p.Files, line)
	}
	still := now.Sub(at) > stalled
	switch {
	case p.Stage == transfer.StageHashing:
		return "reading for the checksum: " + hashed(p)
	case p.Stage == transfer.StageChecking:
		return "comparing the checksum: " + hashed(p)
	case still && p.Done >= p.Total:
		return line + ", the VM compares the checksum"
	case still:
		return fmt.Sprintf("%s, nothing moved for %s", line, Time(now.Sub(at)))
	}
	return line
}

// hashed is how much of a file was read. Its own size is known only where it is
// the only one.
func hashed(p transfer.Progress) string {
	if p.Files > 1 {
		return fmt.Sprintf("%s, %d of %d files", Bytes(p.Hashed), p.File, p.Files)
	}
	return Share(p.Hashed, p.Total)
}
