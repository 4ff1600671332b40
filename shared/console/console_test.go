package console

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestAConsoleNobodyReadsNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // a write blocks until it is read
		c := New(w)
		started := time.Now()
		for range 3 * maxPending {
			if n, err := c.Write([]byte("line\n")); n != 5 || err != nil {
				t.Fatalf("write gives %d, %v", n, err)
			}
		}
		if d := time.Since(started); d != 0 {
			t.Errorf("writing took %v", d)
		}
		c.Close()
		if d := time.Since(started); d != closeTimeout {
			t.Errorf("closing took %v, want %v", d, closeTimeout)
		}
		if _, err := c.Write([]byte("late")); err != nil {
			t.Error(err)
		}
		r.Close() // lets the writer's goroutine end
	})
}
