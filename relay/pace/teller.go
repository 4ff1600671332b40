package pace

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
	line := t.meter.Words(now)
	if p.Files > 1 {
		line = fmt.Sprintf("%d of %d files, %s", p.File, p.Files, line)
	}
	switch {
	case at.IsZero():
		return "asking the VM"
	case p.Stage == transfer.StageHashing:
		return "reading the file for its checksum; " + line
	case p.Stage == transfer.StageChecking:
		return "checking the checksum; " + line
	case now.Sub(at) > stalled:
		return fmt.Sprintf("nothing moved for %s; %s", Time(now.Sub(at)), line)
	}
	return line
}
