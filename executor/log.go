package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// maxLog bounds executor.log; the one before it is kept beside it, so twice this is
// on disk at most.
const maxLog = 4 << 20

// newLog logs everything to a file in the state dir, where an internal error's
// request_id can be looked up later, and warnings to the console as well: in a
// notebook cell that is all a person sees, and nobody wants a line per request there.
func newLog(file io.Writer, console io.Writer) *slog.Logger {
	return slog.New(slog.NewMultiHandler(
		slog.NewJSONHandler(file, &slog.HandlerOptions{Level: slog.LevelInfo}),
		slog.NewTextHandler(console, &slog.HandlerOptions{Level: slog.LevelWarn}),
	))
}

// logFile appends to path and begins anew when it is full.
type logFile struct {
	path string
	mu   sync.Mutex
	f    *os.File
	size int64
}

func openLogFile(path string) (*logFile, error) {
	l := &logFile{path: path}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return l, nil
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size = f, info.Size()
	return nil
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > maxLog {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *logFile) rotate() error {
	l.f.Close()
	if err := os.Rename(l.path, l.path+".1"); err != nil {
		return err
	}
	return l.open()
}

// reopen goes on in the file of that name, made again where it was deleted.
func (l *logFile) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.f
	if err := l.open(); err != nil {
		return fmt.Errorf("opening the log again: %w", err)
	}
	return old.Close()
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f.Close()
}
