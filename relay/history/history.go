// Package history keeps the runs that go through this laptop's relays: their code, output,
// times and runtime. So they can be listed, read and exported after the VM is gone.
//
// Each run has one file in one folder, which any number of relays append to. The package
// names the files itself, never after anything that an executor sent. A kill at any byte
// leaves a readable history: an incomplete line counts as missing. All memory and disk use
// is bounded, whatever an executor sends. It must not delay or fail a run: it writes from its
// own goroutine, and a full disk costs only history. It knows neither terminals nor MCP.
//
// Start reading at Store; queue.go takes what a client reports, writer.go makes lines of it,
// append.go appends them, file.go has the format, read.go and contents.go read it, prune.go
// deletes the oldest runs, complete.go fetches what is missing.
package history

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"colabrelay/relay/client"
)

// DefaultBytes is the usual bound of a history.
const DefaultBytes = 200 << 20

// Bounds that do not depend on the setting.
const (
	maxRuns     = 5000
	maxRunBytes = 16 << 20 // of one run's events; a smaller history allows an eighth of its bytes
	// writeDelay is how long a report waits before it is written: the answer leaves first,
	// and several reports of one run are written together.
	writeDelay = 50 * time.Millisecond
)

// Config is what a Store needs.
type Config struct {
	Dir      string       // created with the first run, for this user only
	MaxBytes int64        // of all files together; at least 1 MiB
	Log      *slog.Logger // nil for none; never gets code or output
}

// Store is the history in a folder. Any number of programs may use it at the same time. Its
// methods are safe for concurrent use.
type Store struct {
	cfg   Config
	delay time.Duration // writeDelay, except in tests

	unreadable once // a file of the history is damaged

	queue  queue
	writer writer // used by the goroutine of queue alone
}

// New returns the Store in cfg.Dir. It creates and starts nothing. A caller that records must
// Close it.
func New(cfg Config) *Store {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("component", "history")
	cfg.MaxBytes = max(cfg.MaxBytes, 1<<20)
	s := &Store{cfg: cfg, delay: writeDelay}
	s.queue.hurry = make(chan struct{}, 1)
	s.writer = writer{dir: cfg.Dir, maxBytes: cfg.MaxBytes, log: cfg.Log, open: map[string]*openRun{}}
	return s
}

// Record returns a recorder of the runs of a runtime.
func (s *Store) Record(runtime string) client.Recorder { return &recorder{s, runtime} }

// Flush waits until everything that was reported is written, or ctx ends.
func (s *Store) Flush(ctx context.Context) error {
	done := s.queue.wait(1)
	defer s.queue.wait(-1)
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closeLimit bounds Close: a disk that answers no more must not keep a program alive.
const closeLimit = 3 * time.Second

var errLate = fmt.Errorf("the disk did not take it within %s", closeLimit)

// Close writes what was reported, for at most 3 s, and ignores later reports. It returns the
// first fault since New because of which something is missing from the history.
func (s *Store) Close() error {
	s.queue.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if s.Flush(ctx) != nil {
		s.cfg.Log.Warn("the end of the history could not be written in time")
		return errLate
	}
	if fault := s.writer.first.Load(); fault != nil {
		return *fault
	}
	return nil
}

// once logs the first of several equal faults.
type once struct {
	sync.Mutex
	said bool
}

func (o *once) do(f func()) {
	o.Lock()
	defer o.Unlock()
	if !o.said {
		f()
	}
	o.said = true
}
