package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// ErrUnread means that nobody reads what is written.
var ErrUnread = errors.New("nobody reads it")

// unreadLimit is how long a write may last after the end of the context.
const unreadLimit = time.Second

// Until returns a writer to w that gives up once ctx has ended: from then on, a write that lasts
// over a second fails with ErrUnread, and so do all later ones. Otherwise a program whose output
// waits for a reader, such as a pager, would not heed Ctrl-C. Of an Output it makes one that gives up
// earlier.
func Until(ctx context.Context, w io.Writer) *Output {
	later, ok := w.(*Output)
	if ok {
		w = later.w
	}
	return &Output{ctx: ctx, w: w, later: later}
}

// Output is the result of Until.
type Output struct {
	ctx    context.Context
	w      io.Writer
	later  *Output // that gives up later and has the same errors; nil for none
	unread atomic.Bool
	failed atomic.Pointer[error]
}

// Err returns the error of the first write that failed; nil for none.
func (u *Output) Err() error {
	if failed := u.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

// Write implements io.Writer.
func (u *Output) Write(p []byte) (int, error) {
	n, err := u.write(p)
	if err != nil {
		u.failed.CompareAndSwap(nil, &err)
	}
	if err != nil && u.later != nil && !errors.Is(err, ErrUnread) {
		u.later.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (u *Output) write(p []byte) (int, error) {
	if u.unread.Load() {
		return 0, ErrUnread
	}
	type result struct {
		n   int
		err error
	}
	text, done := bytes.Clone(p), make(chan result, 1) // the caller may use p again while a write hangs
	go func() {
		n, err := u.w.Write(text)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-u.ctx.Done():
	}
	select {
	case r := <-done:
		return r.n, r.err
	case <-time.After(unreadLimit):
		u.unread.Store(true)
		return 0, ErrUnread
	}
}
