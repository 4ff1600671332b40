package main

import (
	"bytes"
	"io"
	"sync"
)

// maxLastLine bounds the line that lastLine remembers, in bytes.
const maxLastLine = 1 << 10

// lastLine passes on what is written, and remembers the last line of it. Each write holds
// whole lines, as those of slog and complain do.
type lastLine struct {
	w io.Writer

	mu   sync.Mutex
	line []byte
}

func (l *lastLine) Write(p []byte) (int, error) {
	text := bytes.TrimSpace(p)
	text = text[bytes.LastIndexByte(text, '\n')+1:]
	l.mu.Lock()
	if len(text) > 0 {
		l.line = bytes.Clone(text[:min(len(text), maxLastLine)])
	}
	l.mu.Unlock()
	return l.w.Write(p)
}

// last returns the last line, or "".
func (l *lastLine) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.line)
}
