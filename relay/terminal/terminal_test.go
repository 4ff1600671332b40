package terminal

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestALogHasALineOfProgressNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		stop := Watch(&out, func() string { return "37%\x1b[2K of 2.1 GB" })
		<-time.After(2*lineEvery + time.Second)
		stop()
		if got, want := out.String(), "37% of 2.1 GB\n37% of 2.1 GB\n"; got != want {
			t.Errorf("wrote %q, want %q", got, want)
		}
	})
}
