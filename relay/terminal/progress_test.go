package terminal

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vbauerster/mpb/v8"

	"colabrelay/relay/transfer"
)

// draw returns what one refresh of a bar leaves on a terminal of that width.
func draw(t *testing.T, width int, name, line string, p transfer.Progress) string {
	t.Helper()
	var out lockedBuffer
	refresh := make(chan any)
	b := newBar(&out, name, func() string { return line }, mpb.WithWidth(width), mpb.WithManualRefresh(refresh))
	b.Report(p)
	b.Report(p)   // once this is accepted, the first report has been applied
	for range 3 { // once the third refresh is accepted, the first one is drawn
		refresh <- time.Now()
	}
	drawn, _, _ := strings.Cut(out.String(), "\n")
	b.container.Shutdown()
	return drawn
}

func TestTheBarFitsTheTerminal(t *testing.T) {
	p := transfer.Progress{Done: 50, Total: 100}
	line := "50% of 100 B, 25 B/s, 2 s left"
	for width, want := range map[int]string{
		60: "model.bin [========>        ] 50% of 100 B, 25 B/s, 2 s left",
		30: "model.bin  50% of 100 B, 25 B…",
		5:  "mode…",
	} {
		if got := draw(t, width, "/content/run/model.bin", line, p); got != want {
			t.Errorf("%d columns:\n%q, want\n%q", width, got, want)
		}
	}
	if got := draw(t, 80, "evil\x1b[2J\r\n.bin", "waiting: \x1b]0;x\a", p); strings.ContainsAny(got, "\x1b\r\a") {
		t.Errorf("the terminal would interpret %q", got)
	}
}

func TestWithoutATerminalALineNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := NewProgress(&out, "x/big.bin", func() string { return "37% of 2.1 GB" })
		<-time.After(35 * time.Second)
		d.Report(transfer.Progress{})
		d.Close()
		if want := strings.Repeat("big.bin: 37% of 2.1 GB\n", 3); out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

// lockedBuffer is a buffer for concurrent use.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
