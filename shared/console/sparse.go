package console

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// maxRepeats is how many records with the same message a console gets in each sparsePeriod.
	maxRepeats   = 5
	sparsePeriod = time.Minute
	// maxMessages is how many different messages are counted. Further ones share a count.
	maxMessages = 200
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

// repeats counts records by message.
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
	if m == nil && len(c.of) >= maxMessages {
		message = ""
		m = c.of[message]
	}
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
