// Package logfile appends a log to a file of bounded size and keeps the file
// before it. It must not know what is logged. Start reading at Open.
package logfile

import (
	"fmt"
	"os"
	"sync"
)

// maxBytes bounds the file. The previous file is kept next to it as PATH.1, so at
// most twice as much is on disk.
const maxBytes = 4 << 20

// File is an open log file.
type File struct {
	path string
	mu   sync.Mutex
	f    *os.File
	size int64
}

// Open opens or creates the file, readable by its user only.
func Open(path string) (*File, error) {
	l := &File{path: path}
	if err := l.openLocked(); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return l, nil
}

func (l *File) openLocked() error {
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

// Write implements io.Writer.
func (l *File) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > maxBytes {
		if err := l.rotateLocked(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *File) rotateLocked() error {
	l.f.Close()
	if err := os.Rename(l.path, l.path+".1"); err != nil {
		return err
	}
	return l.openLocked()
}

// Reopen continues in the file at the same path, and creates it if it was deleted.
func (l *File) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.f
	if err := l.openLocked(); err != nil {
		return fmt.Errorf("open the log again: %w", err)
	}
	return old.Close()
}

// Close closes the file.
func (l *File) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f.Close()
}
