package journal

import (
	"errors"
	"os"
	"syscall"
)

// maxUnwritten bounds the events of one execution that wait in memory while the disk
// is full, in bytes. Later output is lost, and the execution's reason says so.
const maxUnwritten = 4 << 20

// writeToMemoryLocked keeps a line in memory, in a separate segment.
func (l *eventLog) writeToMemoryLocked(line []byte) error {
	n := int64(len(line))
	if l.unwritten+n > maxUnwritten || l.reserve == nil || !l.reserve.allocateMemory(n) {
		return syscall.ENOSPC
	}
	last := l.lastLocked()
	if last == nil || last.unwritten == nil {
		l.closeFileLocked()
		if last != nil && last.size == 0 { // the file could be made, but nothing written to it
			l.segments = l.segments[:len(l.segments)-1]
		}
		last = newSegment(l.dir, l.next, l.written)
		last.unwritten = []byte{}
		l.segments = append(l.segments, last)
	}
	last.unwritten = append(last.unwritten, line...)
	l.unwritten += n
	return nil
}

// inMemory reports whether some events are in memory only.
func (l *eventLog) inMemory() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unwritten > 0
}

// flush writes the events that wait in memory.
func (l *eventLog) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.unwritten == nil {
			continue
		}
		if err := os.MkdirAll(l.dir, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(s.path, s.unwritten, 0o600); err != nil {
			return errors.Join(err, os.Remove(s.path))
		}
		s.unwritten = nil
	}
	l.releaseMemoryLocked()
	return nil
}

func (l *eventLog) releaseMemoryLocked() {
	if l.unwritten > 0 {
		l.reserve.releaseMemory(l.unwritten)
		l.unwritten = 0
	}
}
