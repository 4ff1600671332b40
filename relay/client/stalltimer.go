package client

import (
	"context"
	"errors"
	"io"
	"time"
)

// errStalled is the cause of a try that the watchdog ended.
var errStalled = errors.New("no progress")

// watchdog ends a try that makes no progress. A fixed limit for the whole would cut
// a big body on a slow line, which is no fault.
type stallTimer struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func startStallTimer(ctx context.Context, first time.Duration) (context.Context, *stallTimer) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &stallTimer{timer: time.AfterFunc(first, func() { cancel(errStalled) }), cancel: cancel}
}

// progress gives the try another span.
func (w *stallTimer) progress(span time.Duration) { w.timer.Reset(span) }

// stop must be called when the try is over.
func (w *stallTimer) stop() {
	w.timer.Stop()
	w.cancel(context.Canceled)
}

// progressReader tells the watchdog about every piece read.
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
