// Package console writes to a terminal, or to a pipe of another program's, that may not be
// read, or may be gone. It never blocks and never fails. It must not buffer more than a
// fixed number of writes. Start reading at Writer.
package console

import (
	"bytes"
	"io"
	"sync"
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
