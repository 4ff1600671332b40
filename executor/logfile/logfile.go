// Package logfile appends lines to a file of bounded size and keeps the full ones beside it: the
// executor's log and the audit log are such files. A disk that is slow, full or gone must not
// stop whoever writes to it, so it costs lines; they are counted, and a line at their place says
// so. It must not know what is logged. Start reading at Write.
package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// patience is how long whoever writes a line waits for it to be in the file.
const patience = time.Second

var errSlow = errors.New("the file could not be written fast enough")

// Config says where lines go.
type Config struct {
	Path     string
	MaxBytes int64 // of the file
	Old      int   // full files that are kept, as PATH.1 (the newest) and so on
	// Open opens or creates the file at Path, to read it and to append to it.
	Open func() (Disk, error)
	// Omitted is the line that stands for missing ones. The cause is that of the last one.
	Omitted func(count int, since time.Time, cause error) []byte
}

// Disk is an *os.File. In a test, it fails as a disk does.
type Disk interface {
	io.ReaderAt
	io.WriteCloser
	Stat() (fs.FileInfo, error)
}

// File is a log file.
type File struct {
	cfg Config

	// turn guards the rest. While somebody waits for it, a test's fake clock goes on, which it
	// does not do for a mutex.
	turn    chan struct{}
	missing int        // lines that are not in the file and that no line tells
	since   time.Time  // when the first of them came
	cause   error      // of the last one
	done    chan error // of the write that is under way; nil if there is none
	tells   int        // how many are not missing any more when it succeeds

	// The write that is under way has these.
	disk Disk        // nil: to be opened
	is   fs.FileInfo // what it was when it was opened
	size int64
	torn bool // its last line has no end
}

// Open opens or creates the file.
func Open(cfg Config) (*File, error) {
	l := &File{cfg: cfg, turn: make(chan struct{}, 1)}
	return l, l.open()
}

// Write adds a line, and takes a second at most: a write that lasts longer is left behind. Until
// it has ended, further lines are omitted at once. An empty line only tells what is missing.
func (l *File) Write(line []byte) (n int, err error) {
	until := time.Now().Add(patience)
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.lookBehind()
	switch {
	case l.done != nil || time.Now().After(until):
		err = errSlow
	case l.missing > 0:
		err = l.write(l.cfg.Omitted(l.missing, l.since, l.cause), l.missing, until)
	}
	if len(line) == 0 {
		return 0, err
	}
	l.omit(err)
	if err == nil {
		err = l.write(bytes.Clone(line), 1, until) // the caller may use its own again before this ends
	}
	if err != nil {
		l.cause = err
		return 0, err
	}
	return len(line), nil
}

// Omit counts a line that is not to be written.
func (l *File) Omit(cause error) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.omit(cause)
}

func (l *File) omit(cause error) {
	if l.missing == 0 {
		l.since = time.Now()
	}
	l.missing++
	l.cause = cause
}

// write writes text, after which so many lines are not missing any more.
func (l *File) write(text []byte, tells int, until time.Time) error {
	done := make(chan error, 1)
	l.done, l.tells = done, tells
	go func() { done <- l.put(text) }()
	select {
	case err := <-done:
		return l.ended(err)
	case <-time.After(time.Until(until)):
		return errSlow
	}
}

func (l *File) ended(err error) error {
	l.done = nil
	if err != nil {
		l.cause = err
	} else {
		l.missing -= l.tells
	}
	return err
}

// lookBehind looks whether the write that was left behind has ended.
func (l *File) lookBehind() {
	select {
	case err := <-l.done:
		l.ended(err)
	default:
	}
}

// Close closes the file, unless a write hangs. No line is written any more.
func (l *File) Close() {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.lookBehind(); l.done == nil {
		l.close()
		l.done = make(chan error) // as if a write hung
	}
}

// put appends text, to a new file if this one is full, or was deleted or replaced.
func (l *File) put(text []byte) error {
	if now, err := os.Stat(l.cfg.Path); err != nil || !os.SameFile(now, l.is) {
		l.close()
	}
	if l.disk == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	if l.size > 0 && l.size+int64(len(text)) > l.cfg.MaxBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if l.torn {
		text = append([]byte{'\n'}, text...)
	}
	n, err := l.disk.Write(text)
	if n > 0 {
		l.size += int64(n)
		l.torn = text[n-1] != '\n'
	}
	return err
}

// open opens the file. A kill may have left a part of a line at its end.
func (l *File) open() error {
	disk, err := l.cfg.Open()
	if err != nil {
		return err
	}
	info, err := disk.Stat()
	last := []byte{'\n'}
	if err == nil && info.Size() > 0 {
		_, err = disk.ReadAt(last, info.Size()-1)
	}
	if err != nil {
		return errors.Join(err, disk.Close())
	}
	l.disk, l.is, l.size, l.torn = disk, info, info.Size(), last[0] != '\n'
	return nil
}

// rotate renames the full files and starts a new one.
func (l *File) rotate() error {
	for n := l.cfg.Old; n > 0; n-- {
		if err := os.Rename(l.old(n-1), l.old(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	l.close()
	return l.open()
}

// old is the path of the n-th full file.
func (l *File) old(n int) string {
	if n == 0 {
		return l.cfg.Path
	}
	return fmt.Sprintf("%s.%d", l.cfg.Path, n)
}

func (l *File) close() {
	if l.disk != nil {
		l.disk.Close()
		l.disk = nil
	}
}
