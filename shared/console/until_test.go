package console

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWriteWaitsForAReaderUntilItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // a write blocks until it is read
		defer r.Close()   // lets the goroutine of the write that hangs end
		ctx, cancel := context.WithCancel(t.Context())
		out := Until(ctx, w)
		go func() {
			<-time.After(time.Hour)
			_, _ = io.ReadFull(r, make([]byte, 4))
			<-time.After(time.Minute)
			cancel()
		}()
		if n, err := out.Write([]byte("late")); n != 4 || err != nil {
			t.Errorf("read late: %d, %v", n, err)
		}
		for range 2 {
			if _, err := out.Write([]byte("unread")); !errors.Is(err, ErrUnread) {
				t.Errorf("not read: %v", err)
			}
		}
		if ctx.Err() == nil {
			t.Error("it gave up before the end")
		}
	})
}

func TestWhatIsReadIsWrittenAfterTheEndToo(t *testing.T) {
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go func() {
		_, _ = Until(ctx, w).Write([]byte("answer"))
		w.Close()
	}()
	if text, err := io.ReadAll(r); err != nil || string(text) != "answer" {
		t.Errorf("%q, %v", text, err)
	}
}
