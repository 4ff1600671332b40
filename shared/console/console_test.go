package console

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
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

func TestRepeatedMessagesAreLeftOutAndCounted(t *testing.T) {
	var out strings.Builder
	h := Sparse(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	now := time.Unix(1e9, 0)
	warn := func(h slog.Handler, message string) (printed string) {
		out.Reset()
		r := slog.NewRecord(now, slog.LevelWarn, message, 0)
		r.AddAttrs(slog.String("execution_id", now.String()))
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Millisecond)
		return out.String()
	}
	const full = "the disk is full"
	for n := range maxRepeats + 1 {
		if printed := warn(h, full); (printed != "") != (n < maxRepeats) || strings.Contains(printed, "left_out") {
			t.Errorf("message %d: %q", n, printed)
		}
	}
	derived := h.WithAttrs([]slog.Attr{slog.String("component", "x")}).WithGroup("g")
	for range 1000 {
		if printed := warn(derived, full); printed != "" {
			t.Fatalf("another logger prints %q", printed)
		}
	}
	if printed := warn(h, "another message"); printed == "" {
		t.Error("another message is left out")
	}
	now = now.Add(sparsePeriod)
	if printed := warn(h, full); !strings.Contains(printed, "left_out=1001") {
		t.Errorf("a minute later: %q", printed)
	}
	if printed := warn(h, full); printed == "" || strings.Contains(printed, "left_out") {
		t.Errorf("the next one: %q", printed)
	}
}

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
