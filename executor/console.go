package main

import (
	"io"
	"sync"
	"time"
)

const (
	// consoleWrites held back for a slow reader; what comes on top is dropped.
	consoleWrites = 256
	// consoleGrace is how long the last lines get to go out at the end.
	consoleGrace = 300 * time.Millisecond
)

// console is a writer that never blocks. In a notebook cell stdout is a pty of a few
// KB: with nobody reading it a plain write hangs for ever, and later gives EIO. Such
// a loss must not stop the executor, so it is not an error either.
type console struct {
	mu     sync.Mutex
	lines  chan []byte
	closed bool          // what is written from now on is dropped
	done   chan struct{} // closed when all that was kept has been written
}

func newConsole(w io.Writer) *console {
	c := &console{lines: make(chan []byte, consoleWrites), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for line := range c.lines {
			w.Write(line) // EIO when the pty is gone: nobody is left to tell
		}
	}()
	return c
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return len(p), nil
	}
	select {
	case c.lines <- append([]byte(nil), p...):
	default:
	}
	return len(p), nil
}

// drop forgets what is written from now on: the terminal is gone.
func (c *console) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// close lets the last lines out, if anybody reads them.
func (c *console) close() {
	c.drop()
	close(c.lines)
	select {
	case <-c.done:
	case <-time.After(consoleGrace):
	}
}
