package client

import (
	"context"
	"errors"
	"io"
	"time"
)

// errStalled is the cause of an attempt that the stall timer ended.
var errStalled = errors.New("no progress")

// stallTimer ends an attempt that makes no progress. A fixed limit for the whole attempt would
// interrupt a big body on a slow connection, which is not an error.
type stallTimer struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func startStallTimer(ctx context.Context, first time.Duration) (context.Context, *stallTimer) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &stallTimer{timer: time.AfterFunc(first, func() { cancel(errStalled) }), cancel: cancel}
}

// progress restarts the timer with span.
func (t *stallTimer) progress(span time.Duration) { t.timer.Reset(span) }

// stop must be called at the end of the attempt.
func (t *stallTimer) stop() {
	t.timer.Stop()
	t.cancel(context.Canceled)
}

// progressReader restarts the stall timer whenever something is read.
type progressReader struct {
	io.Reader
	timer *stallTimer
	span  time.Duration
}

func (r progressReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.timer.progress(r.span)
	}
	return n, err
}
