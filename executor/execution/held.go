package execution

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// hold takes a line into memory, for the disk is full.
func (l *eventLog) hold(line []byte) error {
	n := int64(len(line))
	if l.held+n > maxHeldLog || l.reserve == nil || !l.reserve.hold(n) {
		return syscall.ENOSPC
	}
	last := l.last()
	if last == nil || last.held == nil {
		l.closeFile()
		if last != nil && last.size == 0 { // its file could be made, and no more
			l.segments = l.segments[:len(l.segments)-1]
		}
		last = newSegment(l.dir, l.next, l.written)
		last.held = []byte{}
		l.segments = append(l.segments, last)
	}
	last.held = append(last.held, line...)
	l.held += n
	return nil
}

// holding reports whether some events are in memory only.
func (l *eventLog) holding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held > 0
}

// flush writes down what is held in memory.
func (l *eventLog) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.held == nil {
			continue
		}
		if err := os.MkdirAll(l.dir, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(s.path, s.held, 0o600); err != nil {
			return errors.Join(err, os.Remove(s.path))
		}
		s.held = nil
	}
	l.letGo()
	return nil
}

// letGo gives back the memory that was taken.
func (l *eventLog) letGo() {
	if l.held > 0 {
		l.reserve.release(l.held)
		l.held = 0
	}
}

// retire ends all writing: the execution is forgotten.
func (l *eventLog) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeFile()
	l.letGo()
	l.retired = true
}

// comeBack makes a deleted segment's file again, with what it held.
func (l *eventLog) comeBack(s *segment) error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	fresh, err := openAppend(s.path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(fresh, io.NewSectionReader(l.w, 0, s.size)); err != nil {
		fresh.Close()
		return errors.Join(err, os.Remove(s.path))
	}
	l.w.Close()
	l.w, s.open = fresh, fresh
	return nil
}

// dropMissing forgets segments whose files are gone: reading gives a gap there.
func (l *eventLog) dropMissing() {
	l.segments = slices.DeleteFunc(l.segments, func(s *segment) bool {
		if s.held != nil || s.open != nil {
			return false
		}
		if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		l.kept -= s.size
		return true
	})
}
