// Package console writes to a terminal, or to a pipe of another program's, that may not be
// read, or may be gone. It never blocks and never fails. It must not buffer more than a
// fixed number of writes. Start reading at Writer.
package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxPending is how many writes wait for a slow reader; further ones are dropped.
	maxPending = 256
	// closeTimeout is how long Close waits for the last writes.
	closeTimeout = 300 * time.Millisecond
)

// Writer is a writer that never blocks. In a notebook cell, stdout is a pty with a
// buffer of a few KB: when it is not read, a plain write blocks forever and later
// fails with EIO. An MCP host may never read stderr, whose pipe takes 64 KiB. Neither
// loss must stop a program, so it is not an error.
type Writer struct {
	mu      sync.Mutex
	pending chan []byte
	dropped bool          // further writes are dropped
	done    chan struct{} // closed when all pending writes are done
}

// New returns a Writer to w. Close ends its goroutine.
func New(w io.Writer) *Writer {
	c := &Writer{pending: make(chan []byte, maxPending), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for line := range c.pending {
			_, _ = w.Write(line) // EIO once the pty is gone: a complaint could not be read
		}
	}()
	return c
}

// Write implements io.Writer.
func (c *Writer) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return len(p), nil
	}
	select {
	case c.pending <- bytes.Clone(p):
	default:
	}
	return len(p), nil
}

// Drop drops all further writes: the terminal is gone.
func (c *Writer) Drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped = true
}

// Close waits for the pending writes, but not for a terminal that is not read.
func (c *Writer) Close() {
	c.Drop()
	close(c.pending)
	select {
	case <-c.done:
	case <-time.After(closeTimeout):
	}
}

const (
	// maxRepeats is how many records with the same message a console gets in each sparsePeriod.
	maxRepeats   = 5
	sparsePeriod = time.Minute
)

// Sparse returns a handler that leaves out repetitions: on a full disk, each request may log
// the same warning, and what a console prints is kept in a notebook, a container's log or a
// file without bound. Two records are the same if their messages are, whatever their
// attributes. The next one that is shown has the number of those that were left out.
func Sparse(next slog.Handler) slog.Handler {
	return &sparse{next, &repeats{of: map[string]*repeat{}}}
}

// sparse implements slog.Handler.
type sparse struct {
	next    slog.Handler
	repeats *repeats // shared with the handlers that WithAttrs and WithGroup return
}

func (s *sparse) Enabled(ctx context.Context, level slog.Level) bool {
	return s.next.Enabled(ctx, level)
}

func (s *sparse) Handle(ctx context.Context, r slog.Record) error {
	shown, leftOut := s.repeats.count(r.Message, r.Time)
	if !shown {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", leftOut))
	}
	return s.next.Handle(ctx, r)
}

func (s *sparse) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &sparse{s.next.WithAttrs(attrs), s.repeats}
}

func (s *sparse) WithGroup(name string) slog.Handler {
	return &sparse{s.next.WithGroup(name), s.repeats}
}

// repeats counts records by message, of which a program has only so many.
type repeats struct {
	mu sync.Mutex
	of map[string]*repeat
}

// repeat counts the records with one message.
type repeat struct {
	since   time.Time // of the first one that counts
	shown   int       // since then
	leftOut int       // since the last one that was shown
}

// count reports whether a record with this message is shown now, and how many before it were
// not.
func (c *repeats) count(message string, now time.Time) (shown bool, leftOut int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.of[message]
	if m == nil {
		m = &repeat{}
		c.of[message] = m
	}
	if now.Sub(m.since) >= sparsePeriod {
		m.since, m.shown = now, 0
	}
	if m.shown == maxRepeats {
		m.leftOut++
		return false, 0
	}
	m.shown++
	leftOut, m.leftOut = m.leftOut, 0
	return true, leftOut
}

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
