package main

import (
	"context"
	"log/slog"
	"sync"
)

// away knows why the VM does not answer, while it does not. It is the handler of
// the client's log, which tells of each try: a transfer goes on trying by itself
// and says nothing until it ends.
type away struct {
	mu  sync.Mutex
	why string
}

// reason is what the newest try ended with, empty when it went well.
func (a *away) reason() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.why
}

// Enabled implements slog.Handler.
func (a *away) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (a *away) Handle(_ context.Context, r slog.Record) error {
	why := ""
	r.Attrs(func(attr slog.Attr) bool {
		if attr.Key == "err" {
			why = attr.Value.String()
		}
		return true
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why = why
	return nil
}

// WithAttrs implements slog.Handler.
func (a *away) WithAttrs([]slog.Attr) slog.Handler { return a }

// WithGroup implements slog.Handler.
func (a *away) WithGroup(string) slog.Handler { return a }
