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
type watchdog struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func watch(ctx context.Context, first time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watchdog{timer: time.AfterFunc(first, func() { cancel(errStalled) }), cancel: cancel}
}

// progress gives the try another span.
func (w *watchdog) progress(span time.Duration) { w.timer.Reset(span) }

// stop must be called when the try is over.
func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(context.Canceled)
}

// progressReader tells the watchdog about every piece read.
type progressReader struct {
	io.Reader
	watchdog *watchdog
	span     time.Duration
}

func (r progressReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.watchdog.progress(r.span)
	}
	return n, err
}
