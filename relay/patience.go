package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"colabrelay/relay/plain"
)

// patience says that the VM does not answer, once that lasts. It is the handler of
// the client's log, which tells of each try; a run goes on through cuts.
type patience struct {
	out   io.Writer
	since time.Time // the first failure in a row
	told  bool
}

// Enabled implements slog.Handler.
func (p *patience) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler. One run makes one call at a time.
func (p *patience) Handle(ctx context.Context, rec slog.Record) error {
	why := ""
	rec.Attrs(func(attr slog.Attr) bool {
		if attr.Key == "err" {
			why = attr.Value.String()
		}
		return true
	})
	switch {
	case ctx.Err() != nil: // we gave up, not the VM
	case why == "":
		if p.told {
			fmt.Fprintln(p.out, "relay: the VM answers again")
		}
		p.since, p.told = time.Time{}, false
	case p.since.IsZero():
		p.since = rec.Time
	case !p.told && rec.Time.Sub(p.since) > stillFor:
		p.told = true
		fmt.Fprintf(p.out, "relay: waiting for the VM, where the run may still go on: %s\n", plain.Line(why))
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (p *patience) WithAttrs([]slog.Attr) slog.Handler { return p }

// WithGroup implements slog.Handler.
func (p *patience) WithGroup(string) slog.Handler { return p }
