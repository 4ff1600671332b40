package terminal

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyALongOutageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		outage := &Outage{Out: &out}
		attempt := func(after time.Duration, err error) {
			<-time.After(after)
			outage.Attempt(err)
		}
		down := errors.New("down\x1b[2J")
		attempt(0, down)
		attempt(time.Second, nil)
		attempt(time.Minute, down)
		attempt(time.Second, down)
		if out.Len() > 0 {
			t.Errorf("reported too early: %q", out.String())
		}
		attempt(2*time.Second, down)
		attempt(time.Hour, down)
		attempt(time.Second, nil)
		want := "colab-relay: waiting for the VM; code that has started there keeps running: down\ncolab-relay: the VM answers again\n"
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}
