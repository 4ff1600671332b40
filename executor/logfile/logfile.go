// Package logfile appends a log to a file of bounded size and keeps the file
// before it. It must not know what is logged. Start reading at Open.
package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

// maxBytes bounds the file. The previous file is kept next to it as PATH.1, so at
// most twice as much is on disk.
const maxBytes = 4 << 20

// File is an open log file.
type File struct {
	path   string
	damage error

	mu   sync.Mutex
	f    *os.File
	size int64
}

// Open opens or creates the file, readable by its user only. What has its name and is not a
// file is renamed.
func Open(path string) (*File, error) {
	l := &File{path: path}
	err := l.openLocked()
	if errors.Is(err, bounded.ErrNotFile) {
		err = l.replace(err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return l, nil
}

func (l *File) replace(why error) error {
	kept, err := keep.Aside(l.path)
	if err != nil {
		return err
	}
	l.damage = fmt.Errorf("open the log: %w; it is kept as %q, and a new log was started", why, kept)
	return l.openLocked()
}

// Damage says that the log's name was that of something else, and what became of that. It is
// nil if all was well.
func (l *File) Damage() error { return l.damage }

func (l *File) openLocked() error {
	f, err := bounded.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY)
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

// rotateLocked keeps the old file open until the new one is, so that a fault costs no more
// than this line: the next one tries again.
func (l *File) rotateLocked() error {
	if err := l.renameLocked(l.path + ".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old := l.f
	if err := l.openLocked(); err != nil {
		return err
	}
	return old.Close()
}

func (l *File) renameLocked(previous string) error {
	err := os.Rename(l.path, previous)
	if info, statErr := os.Lstat(previous); err == nil || statErr != nil || info.Mode().IsRegular() {
		return err
	}
	if _, err := keep.Aside(previous); err != nil { // a folder
		return err
	}
	return os.Rename(l.path, previous)
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
