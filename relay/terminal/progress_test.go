package terminal

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/transfer"
)

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
